"""The words of the play: people, places, things, verbs and small phrases, all as plain tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A thing: what it is like, what people do to it and what it does by itself."""

    head: str
    plural: str  # empty if it is regular
    kind: str  # "count", "mass" (no article, singular) or "pair" (always plural)
    adjectives: tuple[str, ...]
    done: tuple[str, ...]  # transitive verbs with this thing as the object
    does: tuple[str, ...]  # intransitive verbs with this thing as the subject


@dataclass(frozen=True)
class Person:
    """A speaker, with the habits that stay the same from the first act to the last."""

    name: str
    gender: str  # "m" or "f"
    trade: str
    kin: str  # the name of a brother or sister
    dish: str
    fear: str
    oath: str


@dataclass(frozen=True)
class Place:
    """Where a scene is set: its heading, how one comes to it and where things lie in it."""

    heading: str
    to: str
    spots: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """What a scene is about."""

    matter: str
    nouns: tuple[str, ...]
    places: tuple[str, ...]


def _rows(table: str) -> list[list[str]]:
    """Split a table into rows of stripped fields; a field ends at a semicolon."""
    lines = (line for line in table.splitlines() if line.strip())
    return [[field.strip() for field in line.split(";")] for line in lines]


def _words(field: str) -> tuple[str, ...]:
    """Split a comma-separated field."""
    return tuple(word.strip() for word in field.split(",") if word.strip())


def _lines(table: str) -> tuple[str, ...]:
    """One entry a line."""
    return tuple(line.strip() for line in table.splitlines() if line.strip())


# name; gender; trade; brother or sister; favourite dish; fear; oath
_PEOPLE = """
Tobrin; m; miller; Elsaby; dumplings; geese; by flour and thunder
Hasklin; m; ferryman; Kestra; smoked eel; mirrors; by oar and onion
Pellow; m; clerk; Nettaby; cold porridge; spiders; by ink and wax
Dunmar; m; innkeeper; Dorabel; pickled herring; silence; by cork and candle
Wendlow; m; shepherd; Sorrelin; turnip stew; echoes; by wool and weather
Ludrec; m; constable; Wilmara; roast chestnuts; moths; by boot and button
Fennimar; m; fiddler; Lorrimay; plum tart; drums; by string and starling
Jorrel; m; smith; Junipa; black pudding; thin ice; by tongs and tallow
Quillam; m; schoolmaster; Avelind; boiled eggs; chalk dust; by comma and chalk
Ambrick; m; gardener; Petrisa; pea soup; scarecrows; by root and radish
Rusket; m; apprentice; Brindeth; honey cake; owls; by crumb and cuff
Corvane; m; captain; Hespeth; ship's biscuit; whirlpools; by brine and barnacle
Elsaby; f; baker; Tobrin; mushroom pie; weevils; by yeast and yesterday
Nettaby; f; widow; Pellow; barley broth; lawyers; by lace and lavender
Sorrelin; f; beekeeper; Wendlow; toasted cheese; bears; by hum and honey
Wilmara; f; mayor; Ludrec; stuffed cabbage; riddles; by seal and ribbon
Brindeth; f; carter; Rusket; bacon pancakes; bridges; by hub and harness
Lorrimay; f; singer; Fennimar; stewed quinces; draughts; by breath and ballad
Hespeth; f; physician; Corvane; nettle soup; cellars; by mint and mustard
Dorabel; f; cook; Dunmar; leek pie; burnt sugar; by ladle and lard
Petrisa; f; seamstress; Ambrick; fig pudding; goats; by hem and hatpin
Avelind; f; bookseller; Quillam; ginger bread; damp; by page and paste
Kestra; f; lamplighter; Hasklin; fried sprats; moonless nights; by wick and window
Junipa; f; potter; Jorrel; potato cakes; earthquakes; by clay and kindling
"""

PEOPLE = tuple(Person(*row) for row in _rows(_PEOPLE))

# head or head/plural, with * for a mass noun and + for a noun that is always plural;
# adjectives; verbs done to it; verbs it does
_NOUNS = """
kettle; dented, copper, round; mend, polish, fill, boil, scour; leak, sing, rattle
lantern; smoky, brass, crooked; light, trim, polish, shutter; flicker, swing, smoke
candle; stubby, yellow, scented; light, snuff, trim, melt; flicker, drip, sputter
ladder; tall, shaky, wooden; climb, mend, paint, shorten; creak, wobble, lean
basket; wicker, heavy, deep; weave, fill, empty, patch; tip, creak, sag
bucket; leaky, tin, narrow; fill, empty, patch, kick; leak, swing, clank
barrel; oaken, stout, mouldy; roll, tap, fill, scrub; roll, leak, groan
hammer; blunt, iron, enormous; swing, lift, sharpen, oil; ring, slip, fall
bellows+; wheezing, leather, ancient; pump, patch, oil, squeeze; wheeze, sigh, gasp
tongs+; iron, greasy, twisted; grip, heat, straighten, clean; pinch, clatter, glow
scissors+; sharp, tiny, squeaky; sharpen, oil, open, polish; snap, squeak, rust
spectacles+; cracked, silver, foggy; wipe, bend, polish, wear; slip, fog, glitter
shears+; rusty, long, clumsy; sharpen, oil, grind, wield; click, rust, stick
rope; frayed, knotted, long; knot, coil, splice, cut; fray, stretch, snap
oar; painted, splintered, short; carve, varnish, lift, patch; splash, float, crack
sail; ragged, white, wide; hoist, patch, furl, unroll; flap, fill, tear
anchor; rusty, clumsy, iron; raise, paint, polish, scrape; drag, sink, hold
net; torn, tarry, fine; mend, cast, dry, untangle; tear, tangle, drip
key; rusty, brass, tiny; turn, copy, file, oil; stick, turn, jingle
clock; slow, loud, painted; wind, repair, set, clean; tick, chime, stop
bell; cracked, bronze, solemn; ring, polish, hang, cast; ring, hum, toll
map; torn, faded, secret; fold, read, copy, draw; curl, fade, lie
letter; sealed, long, unsigned; read, seal, open, answer; arrive, yellow, rustle
ledger; thick, dusty, honest; balance, copy, blot, close; grow, lie, balance
satchel; bulging, leather, muddy; pack, empty, buckle, stitch; bulge, split, rip
quill; sharp, grey, worn; sharpen, dip, chew, trim; scratch, blot, bend
inkwell; chipped, square, full; fill, tip, scrub, cork; spill, crack, dry
book; banned, slim, mouldy; read, bind, lend, print; fall, rustle, fade
almanac; cheap, gloomy, pocket; consult, read, print, believe; lie, exaggerate, fade
petition; humble, urgent, endless; sign, draft, read, fold; grow, fail, circulate
deed; old, doubtful, stamped; sign, copy, witness, forge; fade, vanish, crumble
ballad; sad, rude, popular; sing, write, print, learn; spread, rhyme, ramble
recipe; secret, greasy, simple; copy, follow, guess, improve; fail, change, succeed
receipt; crumpled, false, signed; sign, fold, examine, copy; vanish, fade, flutter
slate; clean, broken, grey; wipe, crack, fill, scratch; squeak, crack, slip
fiddle; walnut, battered, sweet; tune, play, string, pawn; squeak, sing, whine
drum; hollow, round, patient; beat, tighten, paint, shoulder; thump, roll, echo
flute; slender, silver, shrill; play, tune, clean, carve; trill, whistle, crack
trumpet; dented, brass, boastful; blow, polish, muffle, play; bray, shine, echo
coat; patched, grey, velvet; mend, wear, button, dye; shrink, fade, flap
hat; feathered, silly, broad; brush, wear, trim, press; wilt, tilt, droop
cloak; hooded, woollen, dark; mend, wear, brush, line; trail, flap, dry
apron; starched, floury, striped; iron, tie, wash, stain; shrink, flap, dry
shawl; fringed, warm, scarlet; knit, wear, wash, mend; unravel, slip, fade
veil; thin, gauzy, torn; stitch, lift, fold, wear; flutter, tear, slip
boots+; muddy, stout, squeaking; black, lace, mend, wear; squeak, pinch, shrink
gloves+; soft, yellow, odd; stitch, wear, warm, match; shrink, unravel, stretch
ribbon; blue, silken, narrow; tie, iron, cut, unroll; fray, flutter, slip
button; horn, loose, shiny; sew, polish, match, swallow; shine, roll, vanish
needle; bent, fine, bright; thread, sharpen, straighten, lose; prick, bend, glint
thimble; tiny, pewter, lucky; polish, wear, dent, engrave; shine, roll, glint
blanket; itchy, thick, checked; fold, air, wash, weave; itch, shrink, slip
mirror; tall, cracked, truthful; polish, tilt, hang, cover; crack, glitter, lie
loaf/loaves; crusty, burnt, golden; bake, slice, butter, share; rise, cool, crumble
pie; golden, lopsided, steaming; bake, glaze, slice, taste; steam, sink, cool
cake; tall, sugared, leaning; bake, frost, cut, decorate; lean, rise, collapse
cheese; ripe, round, runny; press, slice, taste, wrap; ripen, sweat, crumble
pudding; wobbling, dark, generous; stir, steam, taste, flavour; wobble, sink, steam
sausage; spicy, plump, suspicious; fry, stuff, prick, taste; sizzle, burst, curl
egg; brown, speckled, boiled; boil, crack, poach, peel; roll, crack, hatch
apple; sour, red, wormy; pick, peel, polish, bite; ripen, fall, rot
pear; bruised, green, juicy; pick, peel, stew, bite; ripen, soften, drop
plum; purple, sweet, split; pick, stone, stew, dry; ripen, burst, fall
cabbage; giant, frosty, prize; plant, chop, boil, weigh; grow, freeze, swell
turnip; knobbly, humble, frozen; dig, peel, mash, plant; grow, shrivel, roll
pumpkin; enormous, orange, lopsided; carve, roll, water, measure; swell, roll, rot
onion; strong, red, papery; chop, peel, plait, fry; sprout, sting, roll
honey*; dark, golden, wild; strain, taste, pour, spread; drip, crystallise, glow
soup*; thin, hot, peppery; stir, taste, salt, warm; simmer, steam, boil
cider*; cloudy, sharp, new; brew, pour, taste, bottle; foam, ferment, sparkle
flour*; fine, damp, white; grind, sift, weigh, bag; drift, settle, spill
butter*; fresh, salty, yellow; churn, salt, spread, wrap; melt, soften, harden
wool*; raw, greasy, soft; card, spin, dye, weigh; shrink, itch, tangle
clay*; wet, red, heavy; knead, dig, shape, soak; crack, harden, slump
oil*; clear, smelly, precious; pour, measure, strain, burn; drip, burn, thicken
ink*; black, pale, watery; mix, spill, pour, dilute; run, dry, fade
goose/geese; grey, fat, furious; feed, pluck, fatten, chase; hiss, waddle, honk
hen; speckled, nervous, plump; feed, chase, count, scold; cluck, peck, scratch
mule; stubborn, one-eyed, patient; saddle, load, shoe, lead; bray, kick, sulk
horse; lame, dappled, gentle; saddle, groom, shoe, ride; neigh, stumble, trot
goat; bearded, greedy, white; milk, tether, chase, brush; bleat, climb, chew
lamb; woolly, lost, tiny; feed, carry, shear, bottle; bleat, skip, shiver
ram; horned, proud, shaggy; shear, tether, brush, dodge; charge, snort, stamp
dog; faithful, muddy, deaf; feed, train, tease, brush; bark, dig, howl
cat; tabby, haughty, plump; stroke, feed, flatter, chase; purr, stretch, yawn
sack; bulging, coarse, dusty; fill, tie, weigh, patch; split, sag, leak
sieve; fine, rusty, round; shake, mend, rinse, clean; rattle, clog, leak
millstone; worn, mossy, enormous; dress, turn, lift, chisel; grind, rumble, crack
cart; creaking, two-wheeled, green; load, grease, push, drive; creak, tip, rattle
wheelbarrow; squeaky, muddy, upturned; push, load, oil, mend; squeak, tip, wobble
boat; leaky, narrow, blue; row, caulk, moor, launch; drift, leak, rock
sledge; swift, wooden, red; pull, wax, load, steer; slide, swerve, tip
plank; warped, thick, loose; saw, nail, plane, lay; warp, bend, split
nail; bent, rusty, square; hammer, straighten, bend, count; bend, stick, rust
gate; wrought, squeaking, low; paint, oil, hang, bar; swing, squeak, slam
fence; rickety, long, crooked; paint, mend, climb, whitewash; sag, lean, rot
horseshoe; lucky, worn, iron; forge, heat, bend, nail; glow, rust, clink
hive; busy, domed, angry; smoke, shelter, paint, weigh; hum, stir, buzz
honeycomb; dripping, golden, broken; cut, drain, slice, taste; drip, crumble, glisten
jar; sticky, tall, blue; fill, cork, label, rinse; crack, topple, gleam
jug; brown, chipped, wide; glaze, fill, empty, mend; crack, pour, tip
bowl; shallow, glazed, uneven; glaze, throw, fill, wash; spin, crack, chip
mug; pewter, bottomless, cracked; fill, empty, rinse, raise; tip, leak, clink
bottle; green, dusty, corked; cork, fill, shake, label; clink, roll, break
spoon; wooden, bent, long; lick, polish, carve, lose; bend, clatter, shine
cauldron; black, vast, bubbling; stir, scour, fill, heat; bubble, steam, boil over
spade; sharp, muddy, sturdy; sharpen, clean, lift, borrow; bend, slip, clang
seed; tiny, foreign, dry; plant, water, sort, label; sprout, sleep, swell
rose; white, thorny, late; prune, water, pick, plant; bloom, droop, climb
hedge; prickly, thick, straggling; clip, plant, trim, jump; grow, spread, rustle
chest; carved, locked, heavy; lock, open, drag, bury; creak, groan, rattle
coin; foreign, worn, golden; spend, count, toss, bite; roll, gleam, clink
purse; empty, beaded, fat; fill, empty, stitch, guard; jingle, bulge, shrink
ring; plain, tight, jewelled; wear, engrave, polish, pawn; glitter, slip, shine
medal; tin, heavy, undeserved; wear, polish, engrave, pin; gleam, clink, tarnish
mask; grinning, gilded, horrid; wear, paint, carve, gild; slip, grin, stare
costume; moth-eaten, royal, spangled; stitch, wear, iron, alter; rip, sparkle, moult
curtain; heavy, striped, faded; draw, hem, wash, raise; fall, rise, stick
puppet; jointed, wooden, rude; carve, dress, string, mock; bow, dance, nod
speech; long, noble, rambling; write, rehearse, shorten, deliver; drag, sparkle, wander
banner; brave, patched, green; paint, wave, stitch, unfurl; flap, wave, droop
ballot; folded, spoiled, secret; count, fold, mark, burn; vanish, flutter, multiply
lesson; long, useful, dull; learn, repeat, copy, prepare; end, drag, stick
bench; hard, narrow, wobbly; sand, mend, scrub, varnish; wobble, creak, tip
potion; bitter, purple, fizzing; mix, stir, swallow, spill; fizz, bubble, smoke
ointment; green, smelly, sticky; mix, spread, warm, sell; sting, spread, melt
bandage; clean, tight, endless; wind, wash, roll, tie; slip, unroll, itch
bill; unpaid, modest, astonishing; pay, dispute, add, read; grow, arrive, surprise
bed; soft, lumpy, narrow; make, air, warm, share; sag, creak, groan
shovel; flat, heavy, frozen; lift, warm, wield, scrape; bend, scrape, clang
stove; fat, sooty, stubborn; stoke, light, black, feed; smoke, glow, roar
chimney; tall, blocked, smoky; sweep, mend, brick, climb; smoke, lean, whistle
roof; leaky, mossy, steep; thatch, patch, climb, mend; leak, sag, drip
weathercock; gilded, idle, rusty; gild, oil, admire, repair; spin, point, creak
windmill; creaking, white, lonely; oil, repair, paint, admire; turn, groan, creak
spring; tiny, coiled, broken; wind, replace, oil, stretch; snap, uncoil, twang
plough; heavy, iron, borrowed; guide, sharpen, mend, pull; stick, turn, jolt
scarecrow; ragged, polite, lopsided; dress, stuff, plant, salute; nod, flap, lean
kite; paper, scarlet, tailless; fly, mend, paint, chase; soar, dip, dive
umbrella; black, broken, broad; open, shake, fold, mend; flap, drip, flip
riddle; old, easy, wicked; guess, tell, solve, repeat; circulate, grow, fail
story/stories; tall, true, tangled; tell, believe, repeat, improve; grow, spread, end
"""


def _parse_noun(row: list[str]) -> Noun:
    """Read one row of the table of nouns."""
    head, adjectives, done, does = row
    kind = {"*": "mass", "+": "pair"}.get(head[-1], "count")
    single, _, plural = head.rstrip("*+").partition("/")
    if kind != "count":
        plural = single
    return Noun(single, plural, kind, _words(adjectives), _words(done), _words(does))


NOUNS = {noun.head: noun for noun in map(_parse_noun, _rows(_NOUNS))}
ANIMALS = ("goose", "hen", "mule", "horse", "goat", "lamb", "ram", "dog", "cat")
FIXTURES = ("gate", "fence", "hedge", "chimney", "roof", "weathercock", "windmill", "millstone")
INTANGIBLE = ("riddle", "story", "speech", "lesson", "ballad")

# name; heading; way to it; spots in it
_PLACES = """
mill; The mill at Thistlewick; to the mill; behind the hopper, under the mill stairs, \
among the flour sacks, on the grain shelf, beside the water wheel
quay; The quay at Ottermouth; to the quay; under the upturned boat, behind the salt shed, \
on the harbour steps, beside the mooring post, beneath a heap of sailcloth
bakery; A bakery in Marrowby; to the bakery; behind the oven, under the kneading trough, \
on the cooling rack, beside the flour bin, between two trays of buns
office; The office of the clerk; to this office; under the tall desk, behind the inky curtain, \
on the highest shelf, between two piles of paper, inside the stamp drawer
belfry; The belfry of Saint Wimble's; up to this belfry; behind the great wheel, \
under the bell frame, on the owl's ledge, beside the trapdoor, among the pigeon feathers
orchard; An orchard outside Marrowby; to the orchard; under the oldest tree, beside the stile, \
in the long grass, behind the cider press, against the north wall
square; The market square of Marrowby; to the square; behind the fish stall, under the town pump, \
beside the stocks, on the steps of the hall, among the cabbage leaves
inn; The Drowsy Heron, an inn; to this inn; behind the bar, under the settle, \
on the mantelpiece, beside the cellar door, between two empty barrels
lighthouse; The lighthouse on Gull Point; to the lighthouse; at the top of the spiral stair, \
behind the oil tank, under the lamp, on the seaward sill, beside the foghorn
garden; A kitchen garden; to this garden; behind the bean poles, under the rhubarb, \
beside the compost heap, in the potting shed, against the sundial
court; A courtroom in Marrowby; to this court; under the witness chair, behind the bench, \
on the table of evidence, beside the usher's stool, in the jury box
school; A schoolroom; to the school; behind the blackboard, under the dunce's stool, \
in the coal scuttle, on the globe, beside the broken window
bridge; A half-built bridge over the Wimble; to the bridge; under the first arch, \
behind the pile of stones, on the scaffold, beside the crane, among the wet ropes
hill; A hillside above Quenbury Moor; up this hill; behind the sheepfold, under the thorn tree, \
on the flat rock, beside the beehives, in the dry ditch
kitchen; The kitchen of a great house; to this kitchen; behind the bread crock, under the table, \
on the dresser, beside the spit, in the cold larder
stage; A stage in a barn; to this barn; behind the painted castle, under the trapdoor, \
on the prompter's chair, beside the thunder sheet, among the paper trees
surgery; A physician's parlour; to this parlour; behind the skeleton, under the couch, \
on the leech shelf, beside the weighing scales, inside the medicine chest
workshop; A workshop with one window; to the workshop; under the bench, behind the pattern book, \
on the window sill, beside the glue pot, among the shavings
library; A bookshop in Candle Lane; to the bookshop; behind the atlases, under the reading desk, \
on the poetry shelf, beside the sleeping cat, between two dull sermons
smithy; The smithy at Hobnail Cross; to the smithy; behind the forge, under the water trough, \
on the chimney hook, beside the anvil, among the cold cinders
pottery; A pottery by the clay pits; to the pottery; behind the kiln, under the drying rack, \
on the potter's wheel, beside the slip bucket, among the broken saucers
hall; The town hall of Marrowby; to the hall; behind the portrait of the founder, \
under the mayor's chair, on the gallery rail, beside the ballot box, in the umbrella stand
cellar; A cellar with a dripping tap; down to this cellar; behind the third cask, \
under the broken step, on the candle bracket, beside the rat trap, in the coal hole
road; A crossroads on the moor; to the crossroads; behind the milestone, under the signpost, \
in the ditch, beside the toll gate, among the gorse bushes
"""

PLACES = {name: Place(heading, to, _words(spots)) for name, heading, to, spots in _rows(_PLACES)}

# matter; things; places
_TOPICS = """
the grinding of the harvest; flour, sack, millstone, sieve, mule, ledger, windmill; mill, road
the ferry that would not float; boat, oar, rope, sail, anchor, net, lantern; quay, bridge
the burnt wedding bread; loaf, pie, cake, apron, recipe, basket, butter; bakery, kitchen
a letter without a name; letter, satchel, quill, inkwell, ribbon, ink, spectacles; office, inn
the silence of the great bell; bell, rope, ladder, clock, key, weathercock; belfry, hall
the theft of the fruit; apple, pear, plum, ladder, basket, barrel, scarecrow; orchard, court
the wedding of two strangers; ring, cake, ribbon, fiddle, shawl, veil, gloves; hall, orchard
a bad market day; cart, cheese, goose, coin, purse, cabbage, egg; square, road
the lamp on Gull Point; lantern, oil, mirror, ladder, map, candle, sail; lighthouse, quay
the bees that moved house; hive, honeycomb, veil, honey, jar, candle, bellows; hill, garden
the case of the grey goose; goose, petition, fence, deed, bill, hen; court, square
the clock that struck thirteen; clock, spring, key, spectacles, hammer, bell; workshop, belfry
the prize garden; rose, spade, hedge, seed, wheelbarrow, pumpkin, bucket; garden, hall
the examination; slate, book, lesson, bench, quill, riddle, ink; school, library
a guest who will not pay; barrel, mug, key, bed, sausage, bill, cider; inn, cellar
the building of the bridge; plank, rope, nail, hammer, petition, ladder, bucket; bridge, road
the shearing; lamb, ram, shears, wool, dog, blanket, gate; hill, road
the buried chest; map, chest, spade, key, coin, lantern, story; cellar, quay
the mayor's supper; pudding, goose, spoon, cauldron, recipe, soup, candle; kitchen, hall
the travelling players; mask, drum, costume, curtain, trumpet, puppet; stage, square
the election; speech, banner, ballot, drum, medal, hat; hall, square
the cure for sneezing; potion, ointment, bandage, spoon, bottle, bill, blanket; surgery, inn
the new suit; coat, needle, scissors, button, thimble, mirror, boots; workshop, surgery
the concert; fiddle, drum, flute, ballad, trumpet, curtain, gloves; stage, inn
the missing volume; book, spectacles, almanac, ladder, candle, receipt, story; library, school
the long frost; sledge, boots, cloak, blanket, shovel, stove, chimney; road, kitchen
the counting of the taxes; ledger, coin, hen, receipt, purse, cart; office, mill
the broken plough; bellows, horseshoe, tongs, nail, plough, gate, hammer; smithy, hill
the kiln; jug, bowl, clay, jar, mug, stove; pottery, workshop
the great wind; umbrella, roof, kite, hat, chimney, weathercock, fence; square, lighthouse
the kitchen war; kettle, turnip, onion, soup, cat, apron, spoon; kitchen, garden
the race to the moor; horse, cart, boots, goat, gate, medal, mule; road, bridge
"""

TOPICS = tuple(
    Topic(matter, _words(nouns), _words(places)) for matter, nouns, places in _rows(_TOPICS)
)

# ---- verbs -----------------------------------------------------------------------------------

# base: past, participle
_IRREGULAR = """
be was been; have had had; do did done; go went gone; come came come; say said said
see saw seen; take took taken; give gave given; get got got; make made made; know knew known
think thought thought; find found found; tell told told; leave left left; feel felt felt
bring brought brought; keep kept kept; hold held held; write wrote written; stand stood stood
hear heard heard; let let let; mean meant meant; set set set; meet met met; run ran run
pay paid paid; sit sat sat; speak spoke spoken; shoe shod shod; string strung strung
lead led led; read read read
grow grew grown; lose lost lost; fall fell fallen; send sent sent; build built built
draw drew drawn; break broke broken; spend spent spent; cut cut cut; rise rose risen
drive drove driven; buy bought bought; wear wore worn; choose chose chosen; eat ate eaten
drink drank drunk; sing sang sung; sell sold sold; hang hung hung; sink sank sunk
throw threw thrown; catch caught caught; fly flew flown; steal stole stolen; hide hid hidden
sleep slept slept; wake woke woken; ring rang rung; ride rode ridden; swing swung swung
tear tore torn; bite bit bitten; blow blew blown; feed fed fed; swear swore sworn; bend bent bent
shake shook shaken; stick stuck stuck; weep wept wept; wind wound wound; split split split
spread spread spread; spin spun spun; freeze froze frozen; forget forgot forgotten
forgive forgave forgiven; light lit lit; burst burst burst; dig dug dug; grind ground ground
sew sewed sewn; lend lent lent; cast cast cast; slide slid slid; lay laid laid; lean leant leant
knit knitted knitted; beat beat beaten; sting stung stung; shear sheared shorn
weave wove woven; deal dealt dealt; dream dreamt dreamt; spill spilt spilt; bind bound bound
sweep swept swept; swell swelled swollen; shine shone shone; shrink shrank shrunk; win won won
swim swam swum; begin began begun; burn burnt burnt; learn learnt learnt; understand understood \
understood; become became become; fight fought fought; forbid forbade forbidden
leap leapt leapt; creep crept crept; teach taught taught; seek sought sought; put put put
shut shut shut; quit quit quit; mistake mistook mistaken; ride rode ridden; kneel knelt knelt
unwind unwound unwound; mislay mislaid mislaid; saw sawed sawn; hurt hurt hurt
overhear overheard overheard; bet bet bet
"""

IRREGULAR: dict[str, tuple[str, str]] = {}
for _row in _IRREGULAR.replace("\n", ";").split(";"):
    if _row.strip():
        _base, _past, _participle = _row.split()
        IRREGULAR[_base] = (_past, _participle)

# Verbs that double the last letter although they have two syllables.
DOUBLING = ("chisel", "label", "quarrel", "unravel", "shovel", "shrivel", "travel")

# What people do, all by themselves: {his}, {him} and {self} agree with the subject.
_ACTIVITIES = """
snore like a pair of bellows
whistle in the dark
sneeze at weddings
argue with the weather
limp home from the fair
hum the same four notes
tell the truth by accident
break {his} word
keep {his} promises
pay {his} debts in onions
hold {his} tongue at table
lose {his} temper over trifles
shake {his} head at the moon
talk in {his} sleep
wash {his} hands in cider
weep over a spilt pudding
blush at the mention of {town}
count {his} fingers twice
dance with {his} eyes shut
sing out of tune
walk to {town} for a bun
laugh at {his} own jokes
quarrel with the postman
boast about {his} garden
dream of a house in {town}
write to the governor
read by the light of the stove
sit on the wrong chair
stand in the doorway
complain of {his} knees
forget the names of {his} cousins
remember every insult
wait for better weather
listen at keyholes
blame the moon
borrow without asking
lend without hoping
sleep until noon
rise before the milk
cross the moor alone
climb the church tower backwards
swim across the millpond
hide from the tax collector
cheat at dominoes
bet on slow horses
win at skittles
yawn during sermons
study the habits of snails
collect broken teapots
invent excuses
practise bowing in front of a mirror
polish {his} shoes with butter
mutter about the price of salt
grumble about the mayor
pretend to be deaf
speak to strangers about cheese
feed the sparrows
frighten the pigeons
tickle trout in the stream
follow the band through the town
stumble over the same stone
trip over {his} own shadow
drop crumbs in the hymn books
wander about in the fog
hurry past the graveyard
knock at the wrong door
apologise to the furniture
bow to every scarecrow
tremble at thunder
scowl at babies
smile at the wrong moment
flatter the cook
thank the driver
teach the parrot to swear
learn a new trade
change {his} mind at the last moment
mislay {his} hat
trust {his} luck
envy the rich
advise the foolish
interrupt the schoolmaster
praise {his} own cooking
chew on a straw
nibble at the cheese
swallow {his} pride
gossip beside the well
shiver in the hallway
cough behind the curtain
gamble with buttons
juggle with eggs
wrestle with {his} conscience
hesitate at the gate
marry for the sake of a cow
ask for a second helping
refuse a third helping
arrive a day late
leave before the washing up
save candle ends
waste good daylight
build castles out of crumbs
dig for treasure in the rain
travel with an empty trunk
carry a spare spoon
bring bad news with a cheerful face
send {self} long letters
call {his} debts adventures
admire {self} in shop windows
scold the cat in verse
catch cold in August
"""

ACTIVITIES = _lines(_ACTIVITIES)

# What one person does to another.
DEEDS = _words(
    "praise, tease, scold, thank, follow, greet, warn, forgive, help, flatter, trust, invite, "
    "interrupt, cheat, admire, avoid, envy, insult, obey, surprise, blame, hire, bore, "
    "comfort, disturb, rescue, mock, question, recognise, remember, pity, puzzle, reward, "
    "suspect, visit"
)

# What can happen to anything that can be carried.
HANDLING = _words("borrow, drop, hide, find, fetch, carry, weigh, wrap, sell, buy, guard, pledge")

# ---- small phrases ---------------------------------------------------------------------------

TRADES = _words(
    "miller, ferryman, widow, clerk, innkeeper, shepherd, constable, fiddler, smith, "
    "schoolmaster, gardener, apprentice, captain, baker, beekeeper, mayor, carter, singer, "
    "physician, cook, seamstress, bookseller, lamplighter, potter, tinker, cobbler, tailor, "
    "fisherman, sailor, duchess, baron, bailiff, pedlar, hermit, poet, juggler, landlord, "
    "lodger, chandler, cooper, thatcher, judge, juror, midwife, stranger, traveller, weaver, "
    "gravedigger, barber, dancer, soldier, philosopher, grocer, washerwoman, milkmaid, "
    "drummer, carpenter, bricklayer"
)
WOMEN = _words(
    "widow, baker, beekeeper, mayor, carter, singer, physician, cook, seamstress, bookseller, "
    "lamplighter, potter, duchess, midwife, dancer, washerwoman, milkmaid, juror, weaver, "
    "poet, aunt, grandmother, niece, godmother, landlady, sister-in-law, stepmother, "
    "great-aunt"
)
RELATIVES = _words(
    "aunt, uncle, grandmother, grandfather, niece, nephew, godmother, godfather, landlady, "
    "stepmother, great-aunt, great-uncle, sister-in-law, brother-in-law"
)
FOLK_ADJECTIVES = _words(
    "honest, brave, stubborn, hungry, weary, cheerful, gloomy, vain, patient, clumsy, clever, "
    "thrifty, lazy, polite, proud, humble, curious, foolish, wise, generous, quarrelsome, "
    "absent-minded, punctual, sleepy, merry, nervous, jealous, gallant, pale, careless, "
    "cautious, grateful, loyal, modest, noisy, quiet, restless, solemn, tender, timid, tidy, "
    "bashful, bold, crafty, devoted, dreamy, eager, fussy, greedy, hasty, idle, meek, "
    "obstinate, prudent, ruthless, sensible, shy, talkative, thoughtful, tough, unlucky, "
    "watchful, witty"
)
TOWNS = _words(
    "Thistlewick, Ottermouth, Marrowby, Quenbury, Hobnail Cross, Upper Dimple, Lower Dimple, "
    "Cold Larder, Lanterholt, Gorsely, Snettering, Farthing Green, Plumstock, Wattlebridge"
)
IMAGES = _lines("""
a heron in a hailstorm
a mayor without a chain
a cat at a concert
a pudding on a Monday
a goose in a doorway
a bell with no rope
a ferry in August
a clerk at harvest time
a hen in a hat shop
a fiddle in the rain
a wet almanac
an unpaid cook
a shepherd at sea
a teapot on a trotting horse
an owl at breakfast
a rumour in a small town
the last biscuit on the plate
a moth in a candle shop
a borrowed umbrella
a bridegroom in the wrong church
a tortoise with an appointment
a drum at a funeral
a lamp at noon
a tailor with one sleeve
a judge in a bathtub
an egg in a quarry
the second verse of a hymn
a ghost with hiccups
an apple among cannonballs
a mule on a staircase
a whisper in a foundry
a snowman in a smithy
a poet with a shovel
a key in a haystack
a locked door with no wall
a duchess in a turnip field
""")
VIRTUES = _words(
    "patience, hope, honesty, courage, silence, gossip, luck, hunger, wisdom, folly, thrift, "
    "pride, envy, sorrow, memory, justice, courtesy, curiosity, gratitude, haste, laziness, "
    "love, doubt, boredom, fame, poverty, friendship, caution, ambition, mercy, vanity, "
    "regret"
)
# A thing of the weather, and what it may do.
SKIES = tuple(
    (subject, _words(verbs))
    for subject, verbs in _rows("""
the rain; fall, stop, return
the wind; rise, howl, drop, change
the moon; rise, set, hide, shine
the river; swell, freeze, sink
the snow; melt, fall, drift
the fog; lift, thicken, creep in
the thunder; roll, grumble, pass
the sun; shine, set, climb
the frost; bite, linger, crack
the tide; turn, rise, ebb
the stars; shine, fade, twinkle
the clouds; gather, scatter, darken
""")
)
WHEN_PAST = _lines("""
yesterday
last winter
last Tuesday
three days ago
at dawn
on market day
in the spring
the night before last
before breakfast
on the eve of the fair
during the thunderstorm
a week ago
in the middle of the sermon
after the harvest
between two showers
on my birthday
at the stroke of nine
last summer
a year ago
while the cook was asleep
""")
WHEN_FUTURE = _lines("""
tomorrow
before supper
next Thursday
at sunrise
when the tide turns
after the fair
within the hour
on Saturday
as soon as the rain stops
before the clock strikes ten
by the end of the week
next spring
at the first frost
tonight
after the sermon
before the cock crows
when the bells ring
""")
WHEN_EVER = _lines("""
every morning
on Sundays
in bad weather
after supper
twice a week
at midnight
every Tuesday
whenever it rains
all winter long
before breakfast
once a year
in the summer
when nobody is looking
at full moon
as a rule
at harvest time
""")
UNTIL = _words(
    "tomorrow, Thursday, next spring, the first frost, the next fair, Saturday, midsummer, "
    "the end of the week, my birthday, the bells ring, the tide turns, the harvest, the new "
    "moon"
)
SELDOM = _words("seldom, never, always, often, rarely, usually, hardly ever")
TASKS = _words(
    "easy, hard, noble, cheap, wise, safe, slow, pleasant, dull, brave, rude, foolish, sweet, cruel"
)
BELIEVING = _words("believe, suspect, hear, fear, know, hope, have heard, am told, dare say")
TELLING = _words("told, assured, warned, reminded, once told, often told, gladly told")
CONTAINERS = {
    "honey": "jars of honey",
    "soup": "bowls of soup",
    "cider": "barrels of cider",
    "flour": "sacks of flour",
    "butter": "tubs of butter",
    "wool": "bales of wool",
    "clay": "buckets of clay",
    "oil": "cans of oil",
    "ink": "bottles of ink",
}
PRICES = _words("eggs, plums, candles, coppers, herrings, buns, onions, buttons, pears, pancakes")
NUMBERS = _words("two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen")
WEATHERS = _words("rain, fog, hail, snow, mist, drizzle, moonlight, sunshine, thunder, sleet")
WEEKDAYS = _words("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MEALS = _words("breakfast, dinner, supper, noon, midnight, sunset, dawn")
ABSOLUTE = _words(
    "copper, brass, wooden, wicker, tin, oaken, iron, leather, silver, bronze, pocket, "
    "walnut, velvet, woollen, silken, horn, pewter, boiled, prize, one-eyed, two-wheeled, "
    "wrought, corked, foreign, paper, borrowed, tailless, signed, stamped, sealed, unsigned, "
    "banned, unpaid, locked, folded, secret, popular, false, endless, knotted, upturned, "
    "broken, empty, full, last, checked, hooded, horned, bearded, domed, jointed, striped, "
    "fringed, feathered, gilded, spoiled, frozen, split, lost, wheezing, squeaking, creaking, "
    "steaming, leaning, golden, purple, orange, scarlet, burnt, patched, sugared, painted, "
    "carved, glazed, jewelled, beaded, spangled, royal, upright, bottomless, undeserved, "
    "crumpled, cracked, torn, twisted, splintered, starched, buttered, odd, gauzy, frayed, "
    "tabby, worn, scented, speckled, dappled, spotted, bulging, wobbling, dripping, bubbling, "
    "fizzing, grinning, rambling, straggling, astonishing, bent, lame, deaf, coiled, raw, "
    "wild, papery, dead, wormy, floury, weekly, moth-eaten, battered, chipped, square, "
    "enormous, giant, vast, ancient"
)
