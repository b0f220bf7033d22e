"""What is said: patterns of speech, to be filled with people, things and deeds.

A beat is a short exchange.  `@a>b` begins a speech of a to b, each following line is one way to
say it, and `+` begins a further part of the same speech (`?` one that may be left out).  A line
that ends in `=1` leaves a mark, and a line that begins with `1)` may only follow that mark.  Slots
in braces are filled by `voice.py`: a, b and c are people, x, y and z things of the scene, w an
animal, f and g deeds that were done before the scene began, r, s and t things of a riddle, m a
stranger and u a relative of a.
"""

BEATS = """
= greet
@a>b
Good {daypart}, {b.call}. What brings you {here}? =1
Is that you, {b.call}? I smelt {dish} and hoped for the best. =3
You come {here} at a strange hour, {b.call}, and with a strange face. =1
Welcome {here}, {b.call}. Do not trip over {x.the}. =2
{b.call}, I was just speaking of you to {x.the}, and {x.they} {x.do} not contradict me. =2
Well met, {b.call}. At first I took you for {image}. =3
There you are, {b.call}! I had begun to talk to {x.the}. =2
A good {daypart} to you, {b.call}. You look as {q} as {image}. =3
Come in, {b.call}, and shut the door, for {sky.now}. =1
So {b} has come {here} after all! {c.i} swore that you would stay in {town}. =1
{b.call}, I have waited for you since {meal}, and I have grown {q}. =3
Who comes {here} in such {weather}? If it is {b}, let {b} sit down. =1
@b>a
I come about {x.own}, {a.call}. Have you not heard that {x.they} {x.went}?
I walked from {town} in the {weather}, {a.call}, and all for the sake of {x.own}.
1) A good {daypart} to you too, {a.call}. {c.i} told me that {x.own} {x.was} here.
1) I have come to talk of {matter}, {a.call}, and of {x.the} above all.
1) I should be in {town} by now, {a.call}, but {x.the} would not let me go.
1) Trouble brings me, {a.call}: trouble, and {x.any}, and {n} nights without sleep.
1) My feet brought me, {a.call}. My head would sooner have stayed with {x.own}.
1) What brings anybody {here}, {a.call}? {x.own}, of course, and {matter}.
2) {x.the}? It is because of {x.the} that I have come, {a.call}.
2) Leave {x.the} alone, {a.call}. {x.they} {x.goes} whenever one looks at {x.it}.
2) And what did {x.the} answer, {a.call}? {x.they} used to belong to {kin}.
3) Do not ask how I am, {a.call}. Ask how {x.own} {x.am}.
3) I am {q}, it is true; but you would be worse if you had {x.any} to think of.
3) Peace, {a.call}. I have {x.any} on my mind and {n} stones in my shoe.
@a>b
Then sit, {b.call}, and tell me about {x.the}, and leave out the {weather}.
{x.own}? I thought that {x.they} {x.was} in {town}.
I have heard of nothing else since {weekday}. Even {w.the} {w.goes} about it.
Say no more until I have found a chair, {b.call}. {x.any} should never be discussed standing.
Again {x.the}! Last year it was {y.any}, and the year before that it was {w.any}.
I know something of {x.the}, {b.call}, and {c.i} knows the rest.
{x.own}, is it? Then {c.i} will be here before {meal}.
That is bad news for {x.the} and worse news for {c.me}.
As for {x.the}, {gen.that}.

= weather
@a>b
How dark it grows, {b.call}! I believe that {sky.now}.
Listen, {b.call}: {sky.now}. In such {weather} nobody will look for {x.the}. =1
Do you see how {sky.now}? {c.i} said that it would be so. =2
I have never liked {weather}, {b.call}. It gets into {x.the}. =1
When {sky.does}, {x.any} always {x.goes}, and today {sky.now}. =1
{c.i} told me {past} that we should have {weather}, and behold, {sky.now}. =2
@b>a
If {sky.does} before {meal}, we shall lose {x.the} for certain.
{u} says that {weather} on a {weekday} means {dish} on a {weekday}.
Weather comes and goes, {a.call}; but {x.the} {x.am} {x.spot}, getting wet.
I would rather have {weather} at home than {weather2} in {town}.
1) Let it. {x.own} {x.have} seen worse {weather} in {town}.
1) Then cover {x.the}, for {x.any} that {x.goes} in the {weather} will never {x.go} again.
1) It is only {weather}, {a.call}. It was worse when {f.past}.
2) {c.i}? {c.he} cannot tell {weather} from {weather2} without an almanac.
2) {c.i} says so {often}, and once a year it comes true.
?
Unless {sky.does}, I shall go to {town} {future}.
{gen.if}.
{gen.when}.
@a>b
You would say so if the roof fell on {x.the}.
Then {x.the} will get wet, {b.call}, and I shall get the blame.
{weather} or no {weather}, I am as {q} as {image}.
I will fetch {y.the}, {b.call}. You may stand there and admire the {weather}.
Who could sleep while {sky.now}? Not {c.i}, and not {w.the}.
I only hope that {x.the} will not {x.go} before {meal}.

= where
@a>b
{b.call}, where {x.am} {x.own}? {x.they} {x.was} here {past}.
Have you seen {x.own}, {b.call}? I left {x.it} {x.elsewhere}, and now there is only dust.
Somebody has moved {x.own}, {b.call}. I have looked {x.elsewhere} and under my own hat. =1
I cannot find {x.own}, {b.call}, and without {x.it} I am only half {a.trade}. =1
Where did you put {x.own}, {b.call}? Do not say {x.elsewhere}, for I looked there first.
Tell me one thing, {b.call}: where {x.am} {x.the}?
I have been up and down the stairs since {meal}, {b.call}. Where can {x.own} be?
I need {x.own} before {meal}, {b.call}, and {x.they} {x.have} vanished from the face of {town}. =1
@b>a
{x.own} {x.am} {x.spot}, {a.call}. I saw {x.it} there {past}.
Look {x.spot}, {a.call}. {x.they} {x.have} been there since {weekday}.
Did you look {x.spot}? {c.i} put {x.it} there {past}. =2
1) Nobody has moved {x.the}, {a.call}. {x.they} {x.am} {x.spot}, where {x.they} always {x.was}.
1) Dry your eyes, {a.call}. {x.own} {x.am} {x.spot}, and {w.the} {w.am} guarding {x.it}. =3
I am {b.trade}, not a signpost; but {x.the} {x.am} {x.spot}.
If you mean {x.full}, {x.they} {x.am} {x.spot}. For any other, ask {c.me}.
When I last saw {x.the}, {x.they} {x.was} {x.spot}, and {w.a} sat beside {x.it}. =3
?
I would have told you {past}, but you never asked.
{c.i} {c.have} been looking for {x.it} as well.
{x.they} may be a little damp, for {sky.was}.
Do not thank me. Thank {w.the}.
@a>b
{x.spot}! What would {x.any} want {x.spot}?
{x.spot}, you say? I looked {x.elsewhere} and never thought of it.
Then fetch {x.it} for me, {b.call}, for I will not go looking {x.spot} in the dark.
So {x.they} {x.am} {x.spot}. I wonder who put {x.it} there, and whether {c.i} {c.was} sober.
{x.spot}? No wonder that {x.they} {x.goes}.
I might have known. Everything that I love ends {x.spot}.
2) {c.i}! {c.he} cannot see {x.any} without putting {x.it} somewhere.
2) Then I shall put {c.my} {y} {x.spot}, and we shall see how {c.he} likes it.
3) {w.any}, to look after {x.any}! What will you think of next?
3) And did {w.the} not {x.act} {x.it}? I would not trust {w.it} with {y.any}.
?
Who would leave {x.any} {x.spot}?
{future} I shall tie {x.it} to my wrist.
Some day I shall find {kin} {x.spot} as well.
@b>a
Next time, put a bell on {x.it}.
Whoever hides {x.any} should draw a map.
At least {x.they} {x.am} not {x.elsewhere}, where {w.the} {w.goes}.
A person who owned fewer {y.count} would lose fewer {x.count}.
Ask me again {future}, and I shall charge you {n} {price} for the answer.
Some people lose {x.any} {x.spot}; {kin} lost {kin.his} good name there.

= who
@a>b
{f.who}, {b.call}? Somebody did, and it was not {kin}.
Now tell me truly, {b.call}: {f.who}?
One question, {b.call}, and then you may {b.vp}. {f.who}?
Before you go, {b.call}, I must know {f.who}.
I have asked the whole of {town}, {b.call}, and nobody can say {f.who}.
There is only one thing that I want to know, {b.call}, and that is {f.who}.
@b>a
{f.cleft}, {a.call}, and {f.he} did it {f.why}. =1
{f.past}, {a.call}. {f.he} did it {f.when}. =2
Who {f.vd} {x.it}? {f.i} did, {f.why}. =1
{f.i}. {f.he} {f.vd} {x.it} {f.when}, and all of {town} knows it. =2
I thought that everybody knew. {f.passive} {f.when}. =2
It was {f.i}, and nobody else. {f.he} {f.vd} {x.it} {f.why}. =1
?
I was there, though I looked at {y.the} all the while.
{g.past} as well, but that is another story.
I do not say that it was wise.
{w.the} saw it all, and {w.went}.
@a>b
1) {f.i}, of all people! And {f.why}!
2) I thought as much. Nobody else would have {f.vn} {x.any} {f.when}.
So {f.past}! And I had blamed {g.me} for it.
Are you sure that it was {f.i}? {f.he} told me that {f.he} {f.was} in {town} at the time. =3
Then {f.he} must answer for it, before {meal} if not before the mayor.
If {f.past}, then {f.he} must know where {y.the} {y.am}. =4
1) {f.why}? Then {f.he} must have been as {q} as {image}.
2) {f.when}! And there I was, in {town}, {a.vping}.
?
I shall never trust {f.me} with {y.any} again.
A fine way to treat {x.any}!
I wonder what {f.he} will {z.act} next.
@b>a
Do not be hard on {f.me}. {f.he} did it {f.why}, remember.
3) Ask {f.me} {f.self}, if you do not believe me. {f.he} cannot be far from {town}.
3) As sure as {w.any} {w.goes}. {f.he} {f.was} no more in {town} than I was.
4) {y.the}? {y.they} {y.am} {y.spot}. That was never a secret.
There are worse crimes than {f.doing}. There is {b.vping}, for one.
You would have done the same, {a.call}, with {virtue} in your heart and {x.any} before you.
Be glad that {f.he} did not {y.act} {y.the}.
Well, {x.the} {x.do} not complain. Why should {kin}?

= why
@a>b
{f.whyq}, {b.call}? I have thought about it all {daypart}.
What I cannot understand, {b.call}, is why {f.past}.
You know everything, {b.call}. {f.whyq}?
Is it true that {f.past}? And if it is, why?
{f.past}; so much is certain. But why, {b.call}, why?
{kin} asks me every day why {f.past}. What shall I tell {kin.him}, {b.call}?
@b>a
{f.he} {f.vd} {x.it} {f.why}, {a.call}. It is as simple as that.
Why {f.do} {f.he} {f.v} anything? This time it was {f.why}.
{f.why}, or so {f.he} told {c.me}. =1
Some say one thing and some another, but I think that {f.he} did it {f.why}.
You will laugh, {a.call}. {f.he} did it {f.why}. =2
If you must know, {a.call}, it was {f.why}; and {f.when} nobody thought it strange.
@a>b
That is no reason to {f.gen}. =3
{f.why}! I have heard better reasons from {w.any}. =3
1) And you believe what {f.he} told {c.me}? {f.he} told me that {x.the} {x.went} all by {x.self}.
2) I do laugh, but only on the left side. There {x.was} never {x.any} like {x.it}.
If everybody who has {z.actpp} {z.any} did it {f.why}, where should we be?
It is a poor reason, but I have {y.actpp} {y.any} for a worse one.
Then I forgive {f.me}, although I shall not forget {x.the}.
@b>a
A reason is like {y.any}: one uses what one has.
And what was your reason, {a.call}, when you {y.acted} {y.the}?
3) Then give me a better one. Why would {folk} {f.gen}?
3) It was reason enough for {f.me}, and {f.he} {f.have} never {f.vn} {x.any} since.
There are {n2} reasons for everything, {a.call}, and the first {n} are always foolish.
Reasons come afterwards, like the bill for {x.any}.
At least {f.he} had one. {c.i} never {c.do}.

= deny
@a>b
They say in {town}, {b.call}, that {f.past}. What do you say?
{c.i} told me {past} that {f.plup}. Is it true, {b.call}? =1
Did you know, {b.call}, that {f.past}? I heard it from {kin}.
I will not ask you twice, {b.call}: {f.didq}?
Look me in the face, {b.call}. {f.didq}, or did I dream it?
@b>a
{f.never}, {a.call}, neither {f.when} nor at any other time. =2
It is true, {a.call}. {f.past}, and {f.he} would do it again. =3
Half of it is true. {f.past}, but not {f.when2}. =3
1) If {c.i} said it, then believe the half of it. {f.past}, yes; but it was {f.when}. =3
That is what {w.the} would say, if {w.they} could speak. But I say that {f.past} {f.why}. =3
I deny nothing, {a.call}. {f.past}. {x.they} {x.was} none the worse for it. =3
{f.didq}? No, {a.call}. {f.he} only looked at {x.it} {f.when}, and sighed. =2
Yes, {a.call}. {f.passive}, and there were {n} witnesses. =3
@a>b
2) And yet {x.the} {x.am} {x.spot}, for all the world to see. =4
2) Then either you lie, or {c.i} {c.do}, or {x.the} {x.do}. =4
2) I wish that I could believe you; but your ears are as red as {y.any} on fire. =5
3) So it was {f.i}! I shall ask {f.me}, and {f.he} will tell me the third half of the truth.
3) You say it as if everybody {f.vd} {x.any} {f.when}.
3) I thank you for your candour, {b.call}, and shall send you the bill for {x.the}.
Swear it upon {y.the}! =4
?
{gen.that}.
{gen.past}.
@b>a
4) I swear it upon {y.the}, and upon {z.the} too, if you will bring {z.it}.
5) My ears are always red in {weather}, like those of {kin}.
Believe what you like. {x.the} will still be {x.adj}, and I shall still be {b.trade}.
A lie would have been shorter, {a.call}, but then {x.the} would have blushed.
You asked for the truth about {x.the}, and I gave it to you. You may keep it.

= borrow
@a>b
{b.call}, will you lend me {y.your}? Mine {y.have} {y.gone}. =1
I need {y.any}, {b.call}, and I need {y.it} before {meal}.
May I borrow {y.your}, {b.call}? I will bring {y.it} back {future}. =2
Lend me {y.your}, {b.call}, and I will teach you to {b.vp}.
Could you spare {y.any}, {b.call}, for {a.trade} in distress?
@b>a
You borrowed my {x} {past}, {a.call}, and I have not seen {x.it} since. =3
What do you mean to do with {y.it}? The last time you {y.acted} {y.it}. =4
I would lend you {y.any} gladly, but {c.i} {c.have} {y.it} already. =5
Never lend {y.any} to {a.trade}, {u} used to say. =4
Take {y.it}, {a.call}; but if you {y.act} {y.it}, you must pay {n} {price} for {y.it}. =4
With all my heart, if you first return {z.the} that you borrowed {past}. =3
1) Yours {y.have} {y.gone}? Then you must have {y.actpp} {y.it} too often. =4
2) You will bring {y.it} back? {past} you said the same of my {x}, and where {x.am} {x.they}? =3
@a>b
4) I only want to {y.act} {y.it} a little. By {meal} you will have {y.it} again.
4) I promise that I shall neither {y.act} {y.it} nor {y.act} {y.it}.
3) Return a thing like that? I thought, {b.call}, that it was a present!
3) You gave it to me, {b.call}, in front of {c.me} and {n} strangers.
5) {c.i}! {c.he} {c.do} not even know how to {y.act} {y.it}.
You wrong me, {b.call}. I {y.acted} {y.it} only once, and {y.they} {y.went} all by {y.self}.
Then keep {y.it}, and may {y.they} {y.go} at your wedding! =6
@b>a
6) Do not be angry, {a.call}. {y.they} {y.am} {y.spot}, and you may {y.act} {y.it} till {meal}.
Very well. {y.they} {y.am} {y.spot}. Mind {x.the} when you go out.
A promise from {a.trade} is like {z.any}: {z.they} {z.goes} as soon as one needs {z.it}.
Done; but I shall count {z.the} as soon as you are gone.
Take {y.it}, then, and take my patience with {y.it}, for {sky.now}.
{y.they} {y.am} {y.spot}. If {c.i} {c+ask}, you stole {y.it}.

= bargain
@a>b
What will you take for {x.your}, {b.call}? I offer {n} {price}.
I will give you {n} {price} for {x.your}, {b.call}, and not one more.
{n} {price} for {x.your}, {b.call}! Nobody in {town} would offer so much.
Let us trade, {b.call}. {n} {price} from me, and {x.your} from you.
@b>a
{n} {price}? For {x.any} that {x.was} {x.actpp} by {kin}? Make it {n3}.
{n3}, {a.call}, or {x.they} {x.am} not for sale.
I have refused {n2} {price} from {c.me}. You must give me {n3}.
For {n} {price} you may look at {x.it}. For {n3} you may take {x.it} home.
You insult {x.the}, {a.call}. {x.they} {x.am} worth {n3} {price} to {folk}.
@a>b
{n3}? For {n3} {price} I could buy {y.any} and have {n} left over. I say {n2}.
{x.they} {x.goes}, {b.call}! Everybody has heard {x.it}. {n2}, then, because I like your face.
{n2}, {b.call}, and I will throw in {z.any}. =1
{n3}! You are as {q} as {image}. {n2}, and there is my hand.
@b>a
1) {n2} {price} and {z.any}. Done, and may {x.the} never {x.go} again!
{n2} it is. {kin} will weep, but I can bear it.
Done, at {n2}. The {price} first, {a.call}, and then {x.the}.
{n2} {price}, then. I am robbed; but I am robbed by {a.trade}, and that is an honour.
?
Count them out {x.spot}, where {c.i} cannot see us.
{c.i} {c.am} my witness.
@a>b
Here are the {n2} {price}. Now {x.the} {x.am} mine.
I have only {n} {price} with me. I will bring the rest {future}.
One, two, and so on to {n2}. Count the {price} again, if you trust me as I trust you.
Agreed: {n2} {price} for {x.the}. I feel {q.er} already.

= advice
@a>b
What am I to do, {b.call}? {x.own} {x.goes}, and {y.own} {y.goes} as well.
Advise me, {b.call}. Should I {x.act} {x.the}, or should I {x.act} {x.it}?
You are wise, {b.call}. What would you do with {x.any} that {x.goes}?
I have tried to {x.act} {x.the}, and I have tried to {x.act} {x.it}. What is left, {b.call}?
If you were {a.trade}, {b.call}, what would you do about {x.the}?
@b>a
First {x.act} {x.it}; then {x.act} {x.it}; and if {x.they} still {x.goes}, {x.act} {x.it} again. =1
Do nothing before {meal}, {a.call}. After that, do nothing until {until}. =2
I should {x.act} {x.it}, {a.call}, and I should do it before {sky.does}. =1
Never {x.act} {x.any} that somebody else has {x.actpp}. That is my advice, and it is free. =2
In your place I should go to {town} and {b.vp}. =2
When {x.any} {x.goes}, {folk} will {x.act} {x.it}, but {folk2} will sell {x.it}.
Ask {c.me}. {c.he} once {y.acted} {y.any} with nothing but {z.any}. =3
?
{gen.must}.
{gen.gerund}.
{wit}
@a>b
That is what {u} said, and {u.he} {u.vpd} ever after.
2) I had hoped for something that needed {virtue}, and you give me {virtue2}.
1) And if {x.they} {x.goes} all the same? What then? =4
1) You make it sound easy, {b.call}. You have never had to {x.act} {x.any} in the {weather}.
3) {c.i}? {c.he} would {z.act} {y.any} with {x.any}, and call it {virtue}.
Good advice is like {y.any}: I like to look at {y.it}, but I seldom {y.act} {y.it}.
@b>a
4) Then you must learn to love {x.any} that {x.goes}.
4) Then come back to me {future}, and bring {dish}.
Whoever {x.acts} {x.any} without trying has only {kin} to blame.
I gave you my advice. I did not promise you {virtue}.
You asked {b.trade}. You might have asked {folk}.

= boast
@a>b
There is no {x.er} {x} in {town} than mine, {b.call}. =1
I may say without pride, {b.call}, that mine is the {x.est} {x} in the land. =1
Once, {b.call}, I could {x.act} {x.any} with one hand and {y.act} {y.any} with the other. =2
I have {x.actpp} more {x.count} than you have eaten dinners, {b.call}. =2
Show me {folk} who can {x.act} {x.any} as I do, {b.call}! =2
In {town} they still talk of how I {x.acted} {x.any} on {weekday}, and {y.any} on {weekday}. =2
@b>a
1) {c.my} {x} {x.am} {x.er} than yours, {a.call}, and {c.he} {c.do} not boast of it. =3
1) {kin} had {x.any} that {x.was} {x.er} than both of ours together. =3
1) The {x.est} {x} in the land {x.am} in {town}, and {folk} {x.acts} {x.it} {often}. =3
2) I remember, {a.call}. {x.they} {x.went}, and we all went home.
2) You could not {x.act} {x.any} if {x.they} came with instructions. =4
2) I believe the half of that, {a.call}, and you may keep the other for {kin}. =4
2) {c.i} {c.have} {x.actpp} more, and {c.he} {c.do} not talk about it before {meal}. =4
@a>b
3) You are only jealous, because yours {x.goes}.
3) Compare them, then! Bring yours, and let {c.me} be the judge. =5
4) Mock me if you like. {future} you will come and beg me to {x.act} yours.
4) I do not boast, {b.call}. I only describe {x.any} and {a.trade}.
The truth is no boast, and {x.the} {x.am} my witness.
@b>a
5) {c.i}, a judge? {c.he} cannot tell {x.any} from {y.any}.
5) Let {c.me} judge, then; but first tell {c.him} which {x} is which.
I would sooner compare noses.
Mine is the {q.er} nature, then, and yours the {x.er} {x}.
If boasting could {x.act} {x.any}, {a.call}, you would be mayor of {town}.
Modesty, {a.call}, is the only thing that you never {x.acted}.

= choose
@a>b
Which do you like better, {b.call}, {x.full} or {y.full}?
Should we take {x.the} or {y.the}, {b.call}? We cannot take both.
If you could save only one of them, {b.call}, would it be {x.the} or {y.the}?
{c.i} would choose {x.the}. Which would you choose, {b.call}, {x.the} or {y.the}? =1
@b>a
{x.the}, {a.call}, for {y.any} that {y.goes} {y.am} no use to anybody. =2
{y.the}, without a doubt. {x.any} may be {x.er}, but {y.any} will never {x.go}. =3
Neither, {a.call}. Give me {z.the}, and keep the rest. =4
{x.the} by day, {a.call}, and {y.the} by night. =2
I would take {x.the}, because {f.past}, and that makes {x.it} dear to me. =2
One can {x.act} {x.any}, but who can {y.act} {y.any} in this {weather}? I say {x.the}. =2
1) If {c.i} would choose {x.the}, then I say {y.the}, whatever {y.they} may cost. =3
@a>b
2) {x.the}! I would have said the same of {z.the}.
2) You choose like {folk}, {b.call}. My heart belongs to {y.the}. =5
3) {y.the}? And I, who {x.acted} {x.the} with my own hands, must I say nothing? =5
3) Then we agree about {y.the}, and {c.i} {c.am} wrong, which is a comfort.
4) {z.the}? Nobody spoke of {z.the}! {c.i} always {c+do} this, and now you do it too.
4) {z.the}, when one may have {x.any} and {y.any}! I shall never understand {folks}.
@b>a
5) If you knew your own answer, {a.call}, why did you ask {b.trade}?
Choose for yourself next time, or ask {w.the}.
A question with two answers is like {w.any} with two heads: {w.they} {w.goes} twice as often.
Let {c.me} decide between {x.the} and {y.the}. {c.he} {c.do} not care, and so {c.he} will be just.

= story
@a>b
Let me tell you, {b.call}, what happened to {m} in {home}.
You remind me of {m}, {b.call}, whom I met in {home}.
Did I ever tell you about {m} who {m.vpd}, {b.call}?
There is a story about {x.any} in our family, {b.call}. You have heard it; you shall hear it again.
You want to know about {x.any}, {b.call}? Then listen, and do not {b.vp}.
+
There lived in {home} {m} who {m.vpd} and never {x.acted} {x.any}.
Once upon a {weekday} {m} came to {home} with {x.any} and no shoes.
Many years ago, when {sky.was}, {m} came to our door with {x.a}.
Long before my time {m} in {home} owned {x.a} that could talk, or so {m.he} said.
When {kin} was a child, {m} lived next door, and {m.he} had {x.a} that nobody else might {x.act}.
+
One night, while {sky.was}, {w.a} came in and {x.acted} {x.the}.
First {m.he} {x.acted} {x.it}; then {m.he} {y.acted} {y.the}; and at last {m.he} sat down and wept.
{m.he} {x.acted} {x.it} every day, until {w.the} could bear it no longer.
One {weekday} {m.he} lost {m.his} way in the {weather}, and {m.he} took {w.a} for a signpost.
One {weekday} {x.the} {x.went}, and {m.he} swore that {w.the} had {x.actpp} {x.it}.
Whenever {sky.past}, {m.he} {m.vpd}, and {w.the} {w.went} until morning.
+
"{m.call}," said {w.the}, "whoever {x.acts} {x.any} must also {x.act} {x.any}."
People laughed; but {m.he} went on {x.acting} {x.it}, and after a year {m.he} was {q}.
{m.his} neighbours told {m.him} to {x.act} {x.it}, but {m.he} would not listen.
{m.he} asked {folk} for help, and {folk2} for advice, and neither came.
{m.he} offered {n} {price} to anybody who could {x.act} {x.it}, and then {n2}, and then {n3}.
The mayor of {home} sent for {m.him} and asked {m.him} whether {m.he} had {x.actpp} {x.it}.
?
{m.he} might have {x.actpp} {x.it}, of course; but {m.he} was {folk} at heart.
In those days, you must know, everybody in {home} {x.acted} {x.any} {often}.
+
And when {m.he} died, they found {x.the} {x.spot}, and {x.they} {x.went} still.
So {m.he} married {folk2}, and they {x.acted} {x.any} to the end of their days.
Since then nobody in {home} {x.acts} {x.any} on a {weekday}.
And that is why people in {home} say: as {q} as {image}.
In the end {m.he} gave {x.the} to {w.the}, and they parted friends.
@b>a
Is that the end? What became of {w.the}? =1
And {m.the}? Did {m.he} never {x.act} {x.it} again? =2
I do not believe a word of it, {a.call}; but tell it again {future}. =3
A sad story, {a.call}. I knew {m.the}. {m.he} used to {m.vp}.
When you told it to {c.me}, {m.the} had {y.any} and {w.the} had a hat. =3
@a>b
1) {w.the}? {w.they} {w.was} made mayor of {home}, and nobody saw the difference.
1) {w.the} {w.went} for {n} days, and then {w.they} {w.was} sold to {folk}.
2) {m.he} never did. {m.he} {m.was} seen in {town}, but that was on a {weekday}.
2) Once, {b.call}; but {x.they} {x.went}, and {m.he} {m.vpd} for shame.
3) Every word is true, except for {y.the} and the {weather}.
3) That is how stories grow, {b.call}. {x.any} must be {x.actpp}.
Patience, {b.call}, or I shall tell you how {m.the} lost {y.any} as well.

= bet
@a>b
I will bet you {n} {price}, {b.call}, that {x.the} will {x.go} before {meal}. =1
{n} {price}, {b.call}, that {c.i} cannot {x.act} {x.the} without help! =2
Let us make a wager, {b.call}. If {sky.does} before {meal}, you must {x.act} {x.own}. =3
@b>a
1) {n} {price}? I will make it {n2}; for I have seen {x.the}, and {x.they} never {x.goes}. =4
2) Against {c.me}? I will make it {n2}. {c.he} {x.acted} {x.any} {past}, and whistled. =4
I do not gamble on a {weekday}; but for {n2} {price} I might forget what day it is. =4
3) And if {sky.does} after {meal}, you must {x.act} {x.it}, and pay me {n} {price}. =5
You would bet on {image}, {a.call}. Very well: {n2} {price}. =4
@a>b
4) {n2} it is, and {c.i} shall hold the stakes.
4) {n2}! I only wished to pass the time until {until}; but I am no coward.
4) {n2} {price}, then. If I win, you shall {x.act} {x.the} until {until}.
5) Agreed, {b.call}; and {w.the} shall be our witness, for {w.they} always {w.goes} at noon.
You will be sorry, {b.call}. The last who bet against me had to {b.vp}.
@b>a
If you win, I shall eat {x.the}, with {dish} on the side.
Whoever wins, {x.the} will lose.
Then let nobody {x.act} {x.it} until {meal}, or the wager is void.
4) My {n2} {price} are as good as doubled.
I have lost {x.any} before, and {kin} as well; but I have never lost a wager.

= order
@a>b
{b.call}, bring me {x.the}, and bring {y.the} too, if {y.they} {y.have} not {y.gone}.
Go and {x.act} {x.the}, {b.call}, and be quick about it.
{x.act} {x.the}, {b.call}, and do not let {c.me} {y.act} {y.the}. =1
Put {x.the} {x.spot}, {b.call}, and cover {x.it} with {z.any}.
Help me to {x.act} {x.the}, {b.call}. You take one end, and I will give the orders.
Do not stand there like {image}, {b.call}. {x.act} {x.the}!
@b>a
I will {x.act} {x.the} when I have {y.actpp} {y.the}, and not before. =2
Why must it always be I who {x.act} {x.the}? Let {c.me} do it for once. =3
At once, {a.call}. Only tell me first how one {x.acts} {x.any}. =4
I am {b.trade}, {a.call}. {b.trade} does not {x.act} {x.any} on a {weekday}. =3
{x.the}? I have already {x.actpp} {x.it}, and {x.they} {x.went}. =5
Gladly, if you will {y.act} {y.the} in the meantime. =2
Say please, {a.call}, and say it as if {x.the} could hear you. =6
@a>b
2) {y.the} can wait, {b.call}. {y.they} {y.have} waited since {weekday}.
2) Must I {x.act} {x.any} and {y.act} {y.any} with my own two hands?
3) When {c.i} {c.was} your age, {c.he} {x.acted} {n2} {x.count} before {meal}.
3) Never mind why. {sky.now}, and {x.the} {x.am} still {x.spot}.
4) As {folk} {x.acts} {x.it}: with care, {b.call}, and from behind.
5) Then {x.act} {x.it} again, and this time stay with {x.it} until {meal}.
6) Please, then, {b.call}; please, and may {x.the} choke me.
If {x.the} {x.goes}, {b.call}, it will be your fault.
@b>a
There: {x.they} {x.am} {x.actpp}. Are you content, or must I {x.act} {x.it} too?
I am on my way; but do not ask me to be quicker than {image}.
{future} I shall give the orders, and you will {y.act} {y.the}.
Everything is my fault {often}. Why not {x.the}?
{x.they} {x.am} heavier than {x.they} {x+look}. {c.i} might help me to {x.act} {x.it}.

= count
@a>b
How many {x.count} have we now, {b.call}? {c.i} asked me {past}. =1
Count the {x.count}, {b.call}. There should be {n2}. =2
{past} we had {n2} {x.count}. How many are there today, {b.call}? =2
@b>a
2) I count {n}, {a.call}, and not {n2}.
There are {n} {x.count}, {a.call}, and one of them belongs to {c.me}.
{n}, if I count with my eyes open, and {n3}, if I do not.
1) We had {n2} {past}. {folk} took some, {w.the} took one, and now there are {n}.
1) {n}, {a.call}. {past} there were {n2}, and before that I could not count.
@a>b
{n}! Then somebody has been here, and I think that it was {c.i}. =3
2) {n}? There were {n2} {past}, and {c.i} counted them too. =4
Only {n}! With {n} {x.count} we shall not last until {until}.
{n} is an unlucky number. Count them again, {b.call}. =4
{n} {x.count}, and there are so many of us! Who shall {x.act} them all?
@b>a
3) It was not {c.i}. {c.he} {c.do} not like {x.any} that {x.goes}.
4) {n}, {a.call}. They do not grow by being counted.
4) I have counted them again, from {n} to one, and there are still {n}.
Write down {n2}, and hope that {c.i} {c.do} not look.
I can count to {n3}, {a.call}, but only if there is {x.any} for every number.

= remember
@a>b
Do you remember, {b.call}, how we {x.acted} {x.the} in {home}? =1
I still think of {home}, {b.call}, and of the day when {f.past}. =2
How long ago it seems, {b.call}, since {f.past}! =2
Do you remember {m} in {home}, {b.call}, who used to {m.vp}? =3
@b>a
1) How could I forget it? {sky.was}, and you wore {y.any} on your head. =4
1) I remember {x.the}, and I remember the {weather}; but you, {a.call}, I do not remember.
1) You have it wrong, as ever. It was not in {home}, it was in {town}, and {x.the} {x.went}.
2) It was {f.when}, and {sky.was}. {f.he} did it {f.why}.
2) I remember it {often}, {a.call}, and then I have to sit down.
3) {m.the}? {m.he} owed me {n} {price}, and {m.he} paid me in {dish}.
3) I remember {m.him} well. {m.he} {m.vpd} {often}, and nobody minded.
We were {q.er} then, {a.call}, and the world was {x.er}.
?
{gen.past}.
{gen.pastwhile}.
@a>b
In those days one could {x.act} {x.any} for {n} {price}. =5
4) It was not {y.any}, {b.call}, it was {z.any}; and I wore {z.it} with pride.
And {c.i}? {c.he} {c.was} only so high, and already {c.he} {c.vpd}.
{home} has changed. They {y.act} {y.any} there now, and nobody bows to {folk} any more.
I would give {n2} {price} to {x.act} {x.any} there again. =7
Everything was {x.er} then: the bread, the winters and {x.the}.
@b>a
7) {n2} {price}? They would {x.act} {x.it} there for {n}, and thank you.
5) {n} {price}! Today one cannot even look at {x.any} for less than {n3}.
The past is like {y.any}, {a.call}: {y.they} {y+look} {y.er} from a distance.
Do not sigh, {a.call}. {future} we shall remember today, and {x.the} will have been golden.
I would rather have good {dish} than a good memory.
Memory is {folk} who {x.acts} {x.any} in the dark.
You say that {often}, {a.call}, and every time I agree with you.

= dish
@a>b
What shall we eat tonight, {b.call}? I am as hungry as {image}.
You look thin, {b.call}. What shall I bring you from {town}?
What is your favourite dish, {b.call}? I ask as {a.trade} who owns a spoon.
If you could eat only one thing until {until}, {b.call}, what would it be?
@b>a
{b.dish}, {a.call}, as ever. Nothing else will do for {b.trade}.
Give me {b.dish}, {a.call}, and you may {x.act} {x.the} as you please. =1
I dreamt of {b.dish}, {a.call}, and woke with the pillow in my mouth.
If there were {b.dish} in the world and no {x}, I should not complain. =1
You know it, {a.call}: {b.dish}, and {b.dish} again on {weekday}.
@a>b
{b.dish}! For me there is nothing like {a.dish}. =2
{b.dish} again? {u} ate {b.dish} once, and {u.he} {u.vpd} for a week.
I can offer you {a.dish}. {b.dish}, I fear, {c.i} {c.have} finished. =2
You and your {b.dish}! {c.i} {c.am} just as bad, with {c.his} {c.dish}.
1) And what {x.have} {x.the} to do with {b.dish}? I shall {x.act} {x.it}, and eat {a.dish}. =2
@b>a
2) Then let us have {a.dish} first and {b.dish} after, and let {x.the} wait.
2) {a.dish}? I would sooner eat {x.any}, with {y.any} for sauce.
A world with both {a.dish} and {b.dish} in it cannot be wholly bad.
Bring whatever you have, {a.call}. Hunger is {folk} who asks no questions.

= fear
@a>b
Why do you tremble, {b.call}? It is only {x.the}. =1
You are pale, {b.call}. Did you see a ghost {x.spot}? =2
Are you never afraid, {b.call}, when {sky.does}? =3
What do you fear most in the world, {b.call}, apart from {x.the}? =1
@b>a
1) It is not {x.the} that I fear, {a.call}. It is {b.fear}.
2) I thought of {b.fear}, {a.call}, and my knees gave way {x.spot}.
2) A ghost I could bear, {a.call}. What I cannot bear is {b.fear}.
3) I fear nothing when {sky.does}, {a.call}. I fear only {b.fear}.
I dreamt of {b.fear} again, and {w.the} in my dream had {kin.own} face.
@a>b
{b.fear}? Nobody here has met with {b.fear} since {weekday}.
How strange! I love {b.fear}; but {a.fear} I cannot endure. =4
Each of us has something, {b.call}. With you it is {b.fear}, and with me it is {a.fear}. =4
Think of {c.me}, who cannot hear of {c.fear} without a chair.
@b>a
4) {a.fear}! Then you go first when we come to {b.fear}, and I when we come to {a.fear}.
4) You watch for {b.fear}, then, and I will watch for {a.fear}, and {x.the} will be safe.
Then you go first, {a.call}, and I will hold {x.the}.
Do not say it so loudly, or {b.fear} will hear you, {a.call}.

= riddle
@a>b
Here is a riddle, {b.call}. It is {r.adj} and it {r.goes}, and people {r.act} it. What is it?
Guess, {b.call}: what {r.goes} and {r.goes}, and is {r.actpp} {often}?
I know a thing, {b.call}, that {r.goes} when one {r.acts} it. What is it called?
What is {r.adj} in the morning, {b.call}, and {r.goes} at night?
@b>a
{s.any}, of course. No: {s.any} would never {r.go}. Is it {t.any}?
It must be {s.any}. What else could one {s.act}?
{u}, if {u.he} had a handle.
Give me a hint, {a.call}. Can one {s.act} it? =1
{t.any}? {s.any}? I give it up, and you may {a.vp}.
@a>b
You are as cold as {dish}, {b.call}. {c.i} guessed it before {meal}.
1) No, no. One can {r.act} it, but one can never {s.act} it.
Wrong! Think of {town}, and of a thing that one may {r.act}.
You were nearer before you spoke, {b.call}. It {r.goes}, remember!
@b>a
Then it is {r.any}, {a.call}.
Wait: it {r.goes}, and one {r.acts} it. It is {r.any}!
{r.any}! Why did you not say that it {r.goes}?
I have it! {r.any}, and may nobody ever {r.act} one like it.
@a>b
{r.any} it is. You have earned {n} {price}.
{r.any}, yes. {u} needed {n} years to find it.
Right, {b.call}: {r.any}. Now you ask, and I will {a.vp}.
{r.any}. The next one is harder, so {r.act} your wits.

= gossip
@a>b
Have you heard the news of {c.me}, {b.call}? They say that {c.he} {c.vps} now. =1
I would not say it to everyone, {b.call}; but {c.i} {c.have} been seen {c.vping}. =1
Come closer, {b.call}. {m} in {town} told {kin} that {c.he} {c.vps}. =2
Nobody tells me anything, {b.call}, and so I know only that {c.i} {c.vps}. =1
@b>a
{c.i}? {c.he} would sooner {c.vp}.
I have known {c.me} since {c.he} {c.was} small, and {c.he} always {c.vpd}.
1) And why should {c.he} not? I know {folk} who {folk.vps}, and nobody minds.
2) Who does? {c.i}? And who told you so? {m.the}, who {m.vps}?
1) That is nothing. {past} {c.he} {c.was} seen {c.vping}, and {w.any} {w.was} with {c.me}. =3
I am no gossip, {a.call}; but tell me more, and begin with {x.the}. =3
?
{gen.that}.
{gen.who}.
@a>b
And that is not all. {f.past}, and it was {f.why}.
2) {m.the} swears that {c.i} {c.vpd} all night, and that {x.the} {x.went} the while.
If I were {c.i}, I should {a.vp} no more.
3) I say nothing. I only wonder what {c.kin} will say to it.
You will see: {future} {c.i} will {c.vp}.
@b>a
Hush, {a.call}! {c.i} may be {x.spot}, with both ears open.
Let us not speak ill of {c.me} until {c.he} {c.am} here.
Poor {c}! If it were not for {x.the}, I should be sorry for {c.him}.
A story like that needs no legs, {a.call}. It has {town} to carry it.
The best of it is that {c.i} {c.do} not know that we know.

= plan
@a>b
Listen, {b.call}. {future} we shall {x.act} {x.the} and carry {x.it} to {home}. =1
I have a plan, {b.call}. You {x.act} {x.the}, {c.i} {y.acts} {y.the}, and I keep watch. =2
This is what we must do, {b.call}: {x.act} {x.the} first, and {y.act} {y.the} afterwards. =2
If we are to be in {home} by {meal}, {b.call}, we must {x.act} {x.the} now. =1
@b>a
2) And who will {y.act} {y.the}? Last time you said that {c.i} would. =3
1) Carry {x.any} to {home}, in this {weather}? We should be as safe as {image}. =4
A good plan, {a.call}; only {x.the} {x.am} {x.spot}, and {w.any} {w.am} sitting on {x.it}. =4
Before we {x.act} {x.it}, somebody must {x.act} {x.it}; otherwise {x.they} {x.goes}. =3
What if {sky.does} while we are {x.acting} {x.it}? =5
@a>b
5) If {sky.does}, we shall hide {x.spot}.
3) {c.i} will see to that. {c.he} {c.have} {y.actpp} {n2} {y.count} this week.
3) Then you shall {y.act} {y.the}, and {c.i} shall sing of {v}, so that nobody hears it.
4) There is always a danger. But think of {home}, {b.call}, and of {b.dish}!
4) Nobody ever {x.acted} {x.any} by asking questions, {b.call}.
5) Then {c.i} must hold {y.any} over our heads, and {x.the} will stay dry.
@b>a
So: first {x.the}, then {y.the}, then {home}. I have it by heart.
I am with you, {a.call}; but my legs are against {home}.
Let me only say goodbye to {w.the}, and to {kin}.
Very well. You lead, I follow, and {c.i} {z.acts} {z.the}.
If it goes wrong, {a.call}, I was at home, {b.vping}.

= mishear
@a>b
Pass me {x.the}, {b.call}, if you please. =1
Have you {x.actpp} {x.the} yet, {b.call}? =1
I never saw such {x.a}, {b.call}. =2
I was thinking of {x.the}, {b.call}, and of how {x.they} {x.goes}. =2
@b>a
1) {y.the}, did you say? {y.they} {y.am} {y.spot}. =3
2) {y.any}? Who speaks of {y.any} in this {weather}? =3
What about {y.the}, {a.call}? I am a little deaf when {sky.does}. =3
1) You want {y.the}? I thought that {c.i} had {y.it}. =3
@a>b
Not {y.the}, {b.call}; {x.the}! What should I do with {y.any}?
I said {x}, {b.call}. {y.any} {y.am} what {folk} {y.acts}.
{x}, I said, {x}! Must I spell it for {b.trade}?
If I had meant {y.the}, {b.call}, I should have said {y}.
@b>a
Ah, {x.the}! You should speak more like {folk}, {a.call}, and less like {image}.
{x.the}? Why, {x.they} {x.am} {x.spot}, next to {y.the}.
Then say {x}, {a.call}, and not {y}.
It is the same to me, {x} or {y}. Neither of them is worth {n} {price}.

= sorrow
@a>b
Leave me alone, {b.call}. {x.own} {x.have} {x.gone}, and my heart with {x.it}.
I have not slept, {b.call}, since {f.past}.
Nothing is left to me, {b.call}, but {x.the} and the {weather}.
If only I had never {x.actpp} {x.the}, {b.call}!
Do not look at me, {b.call}. I am {a.trade} without hope, and {x.the} {x.goes}.
+
All night I lay awake and listened to {w.the}, who had no sorrows.
Whatever I {x.act} soon {x.go3}; whomever I trust goes to {town}.
They told me to {a.vp}, and I did; and what came of it but {v}?
When I close my eyes I see {x.the}, and when I open them I see {y.the}.
Once I was {q}, {b.call}, and people bowed; now they send me {dish} in a bowl.
{kin} warned me: whoever {x.acts} {x.any}, {kin.he} said, will weep before {meal}.
+
{gen.pastwhile}.
{gen.wish}.
{gen.when}.
@b>a
Come, {a.call}, it is only {x.any}. There are {n3} more in {town}. =1
Weep, if it helps; but do not weep on {y.the}. =2
I know {folk} who lost {n} {x.count} and lived to {folk.vp}. =1
Take heart. {c.i} lost {x.any} too, and now {c.he} {c.am} as merry as {image}. =1
Eat something, {a.call}. Nobody was ever sad and full of {a.dish} at once. =3
?
{wit}
{gen.gerund}.
@a>b
3) You mean it well, {b.call}. Have you any {a.dish}, or only {b.dish}?
3) Can {a.dish} {x.act} {x.the}? Can it {y.act} {y.the}?
1) Only those who have {x.actpp} {x.any} can know what I suffer, {b.call}.
1) But those {x.count} are not mine, {b.call}, and mine {x.was} {x.adj}.
2) {y.the} {y.have} been wet before, {b.call}, and {y.they} never {y.went} for it.
You are right, {b.call}. {future} I shall rise and {a.vp}.

= love
@a>b
Can you keep a secret, {b.call}? I think that I am in love with {m}. =1
Every time that I see {m} at the fair, {b.call}, I forget my own name. =1
{b.call}, how does one tell {m} that one loves {m.him}? =2
@b>a
1) With {m.the}? But {m.he} {m.vps}! =3
Give {m.him} {x.any}, {a.call}. Nothing speaks so plainly as {x.any}. =4
2) One does not tell {m.him}. One {x.acts} {x.any} under {m.his} window until {m.he} asks. =4
1) {m.the}? I have seen {m.him} {m.vping}. Are you sure that it is love, and not {dish}? =3
Write {m.him} a letter. {c.i} will correct the commas. =5
@a>b
4) I gave {m.him} {x.any} {past}, and {m.he} {x.acted} {x.it}. =6
3) {m.he} may {m.vp} as long as {m.he} likes. {m.his} eyes are like {y.any} in the {weather}. =7
3) Let {m.him} {m.vp}. When {m.he} {y.acts} {y.any}, the whole of {town} grows quiet. =7
5) I have written {n2} letters, {b.call}, and {w.the} ate all but {n}. =7
4) {x.any}? {m.he} has {n2} {x.count} already, and {m.he} {x.acts} them {often}. =7
@b>a
6) If {m.he} {x.acted} {x.it}, {a.call}, there is hope.
7) Then marry {m.him}, {a.call}, and let me have {y.the}.
Love is like {x.any}: {x.they} {x.goes} just when visitors come.
Does {m.he} know that you {a.vp}? Tell {m.him} that last.
Sleep on it, {a.call}. {past} you were in love with {folk}.

= thanks
@a>b
I never thanked you, {b.call}, for {x.acting} {x.own}. =1
You were kind to me, {b.call}, when {x.own} {x.went}. =2
It was you who {x.acted} {x.the}, {b.call}, and I shall not forget it. =1
@b>a
It was nothing, {a.call}. Anybody who had {y.any} could have done it.
1) Do not thank me. Thank {c.me}, who held {y.the}.
You may thank me by {x.acting} mine {future}.
2) I did it because {x.any} that {x.goes} will keep me awake.
Thank me when you have seen what I did to {y.the}. =3
@a>b
Here are {n} {price} for your trouble, and {y.any} for {c.me}.
3) What did you do to {y.the}? No; tell me {future}.
I thank you all the same, {b.call}, and {x.the} {x+thank} you too.
If ever you need {folk}, {b.call}, come to me; I know {n2}.
You are as generous as {image}, {b.call}.

= insult
@a>b
You are as {q} as {image}, {b.call}, and you {x.act} {x.any} like one. =1
{w.any} {w.have} more sense than you, {b.call}, and {x.acts} {x.any} better. =2
I have met {q} people in {town}, {b.call}, but you are the {q.est} of all. =1
If you were {x.any}, {b.call}, I should {x.act} you and be done with it. =3
@b>a
And you, {a.call}, are {image}, only less useful.
3) And if you were {x.any}, {a.call}, you would {x.go} before {meal}.
You should know it. Who {x.acted} {x.the} {past}? Was it I? =4
2) I was called worse {past}, {a.call}, and by {w.any} as well.
Say that again {x.spot}, where {c.i} can hear you!
1) {q}, am I? At least I never {b.vpd} in front of the mayor. =5
@a>b
5) That was {n} years ago, and the mayor was asleep.
4) It was dark, and {sky.was}. Anybody might have {x.actpp} {x.it}.
I take it back, {b.call}. {w.any} would blush to be named beside {x.any}.
You were always {q}. {u} said so when you were in your cradle.
@b>a
Let us not quarrel in front of {x.the}.
Shake hands, {a.call}. We have both been {q}, and supper grows cold.
I forgive you, {a.call}, but only because {sky.now}.
Enough, {a.call}. I have used up all my insults until {until}.
Then we are even, {a.call}, and {c.i} {c.have} won.

= news
@c>a
Have you heard it? {f.past}! All of {town} is on its feet. =1
News, {a.call}, news! {f.perf}, and {g.past} as well. =1
Stop everything, {a.call}! {x.own} {x.have} {x.gone}, because {f.past}. =1
I ran all the way {here} to tell you that {f.past}. =1
Put down {y.the}, {a.call}, and hear me. {f.past}, {f.why}. =2
@a>c
{f.i}? {f.past}? Say it again, {c.call}, and breathe in between.
1) When was this, {c.call}, and who saw it? =3
I knew it! I dreamt of {x.any} {past}, and {x.they} {x.went}.
Sit down, {c.call}. You are as red as a brick. Who told you that {f.past}? =4
You are too late, {c.call}. {b.i} told me before {meal}. =5
2) {f.why}? Nobody in {town} would {f.gen} for that.
@c>a
3) It was {f.when}. {w.a} saw it, and {folk}.
4) I had it from {m}, who had it from {folk}, who was {a.vping} at the time.
5) And did {b.i} tell you that {f.he} did it {f.why}?
They say that {f.he} did it {f.why}. Nobody knows what {f.he} will {y.act} next.
{c.kin} has written it down, so it must be true. {f.he} did it {f.why}.
+
What are we to do about {x.the}?
And now {x.the} {x.am} {x.spot}, and {n} {folks} are standing round {x.it}.
The mayor is on her way from {town}, with {y.any} in her hand.
In {town} they are ringing the bells, and {w.the} {w.goes}.
@b>c
If {f.past}, {c.call}, we are lost; and if we are lost, we may as well eat {dish}.
Bar the door! Whoever {f.vd} {x.the} will {y.act} {y.the} next.
I am surprised that it did not happen {past}. {x.any} like that {x+invite} it.
Let us first {x.act} {x.the}, {c.call}, and afterwards ask who {f.vd} {x.it}.
{f.he} {f.have} my sympathy. I once {y.acted} {y.any} myself, in a fit of {virtue}.

= judge
@a>b
Let us be fair, {b.call}. Who is to blame if {x.own} {x.goes}? =1
You shall be the judge, {b.call}. {f.past}. Was it right or wrong? =2
Is it a crime, {b.call}, to {f.gen} {f.when}? =2
@b>a
If {f.past}, {f.he} must pay {n} {price}; but if {f.he} did it {f.why}, then only half. =3
2) That depends. Did {f.he} {f.v} {x.it} before {meal} or after it? =4
2) There is a law against it, {a.call}; but it was written in {town}, on a {weekday}.
I find {x.the} guilty, and {f.me} only foolish. =5
1) Whoever {x.acts} {x.any} must answer for it; so it was in {kin.own} time, and so it is in {town}.
@a>b
3) A wise judgement. Half of {n} {price} is more than {f.he} ever had.
4) After it, I think. {f.he} had {dish} on {f.his} chin.
5) You are too kind. In {town} they would {y.act} {f.me}.
And what shall {c.i} pay, who held {y.the} and laughed? =6
@b>a
6) {c.i} shall {x.act} {x.it} until {until}.
6) {c.i}? {n2} {price}, and {c.he} must {c.vp} in front of us all.
The law is like {w.any}, {a.call}: {w.they} {w.goes} at strangers.
I have spoken. Now somebody must wake {c.me}.
Justice is slow, {a.call}, but then she has no {x}.

= philosophy
@a>b
I have been thinking, {b.call}. {gen.habit}. =1
Is it not strange, {b.call}, that {gen.habit}? =1
They say that {v} is like {x.any}. Do you believe it, {b.call}? =2
What is {v}, {b.call}, if not {x.any} that {x.goes}? =2
Tell me, {b.call}, which is worse: {v} or {virtue}? =3
@b>a
2) {v} is {x.any} that one {x.acts} too late. =4
2) {v}, {a.call}, is what {folk} feels when {x.the} {x.goes}. =4
1) {gen.habit}. That is all that I know about it.
1) You think too much for {a.trade}. {gen.when}.
3) {v}, {a.call}; for of the other one can at least be cured by {x.acting} {x.any}. =4
I leave such things to {kin}, who {kin.vps}.
2) {v} is for those who have no {x}, {a.call}. =4
?
{gen.gerund}.
{wit}
@a>b
4) You have a hard heart, {b.call}, or else you never knew {v}.
Perhaps; and yet {gen.habit}.
I shall write that down, {b.call}, and lose it {x.spot}.
Where did you read that? I thought that you never {y.acted} {y.any}.
That is wise, {b.call}, or else it is the {dish} speaking. {c.i} would know.
@b>a
When I am {q} I shall understand it. Until then I shall {b.vp}.
Think as you please, {a.call}; but {x.act} {x.the} while you think.
{wit}
The longer one thinks, {a.call}, the {x.er} {x.the} {x+grow}.

= farewell
@a>b
I must go, {b.call}. {sky.now}, and {x.the} will not wait.
It is late, {b.call}. I promised to be in {town} before {meal}.
Farewell, {b.call}. Remember to {x.act} {x.the}.
Enough for one {daypart}, {b.call}. My bed is calling, and so is {w.the}.
@b>a
Go, then, {a.call}; but leave {y.the} {y.spot}. =1
Farewell, {a.call}. Greet {u} from me, and {u.his} {w}.
Must you go already, {a.call}? Of {z.the} we have not spoken at all. =2
Until {until}, {a.call}. Mind {y.the}, and mind {c.me}.
Safe home, {a.call}. If {sky.does}, come back and sleep {x.spot}.
@a>b
I will come again {future}, and bring {a.dish}.
2) Of {z.the} we can speak {future}, {b.call}, over {a.dish}.
1) {y.the}? I would sooner leave my shoes. Farewell, {b.call}!
Until {until}, then, if {x.the} {x.do} not {x.go} first.
If I am not back by {meal}, {x.the} {x.am} yours.

= closing
@a>b
So ends {matter}, {b.call}. I had expected more of {x.the}. =1
Well, {b.call}, {x.the} {x.am} where {x.they} should be, and so are we. =1
And what, {b.call}, have we learnt from {x.the} this {daypart}? =2
Is that the end of {matter}, {b.call}? May one {one.vp}? =1
@b>a
2) We have learnt that {gen.habit}.
2) That {x.any} that {x.goes} should not be {x.actpp} by {folk}; but we knew it before.
1) It is over until {until}, {a.call}. Then it will be {y.the}.
1) It ends where it began, {a.call}: {x.spot}, in the {weather}.
Never say so, {a.call}. {x.the} may hear you, and {x.go} again.
+
{c.i} will tell it differently in {town}.
Let us go home, before {sky.does}.
Come, {b.dish} and a warm stove are waiting.
Somebody should tell {f.me} about {y.the}.
{wit}

= inspect
@a>b
Look at {x.this}, {b.call}. What do you see? =1
{b.call}, you know about {x.plural}. What do you make of {x.this}? =1
Hold {x.the} up to the light, {b.call}. {x.am} {x.they} {x.grade} enough? =2
@b>a
1) I see {x.a}, {a.call}, that {x.was} {x.actpp} by {folk} and {x.have} never got over it.
2) {x.they} {x.am} {x.grade} enough for {a.trade}, {a.call}, but I have seen {x.er}.
2) {x.grade}? In {town} they would call {x.it} {x.adj}, and {x.act} {x.it} at once. =3
{x.they} {x.was} made in {home}, {a.call}. Only there do they {x.act} {x.any} so badly.
{x.any} like {x.this1} {x.goes} when {sky.does}. Has nobody told you? =3
1) I see {x.any}, {a.call}, and I see {a.trade} who paid too much for {x.it}. =4
@a>b
3) {c.i} sold {x.it} to me, and swore that {x.they} never {x.went}. =5
4) I paid {n} {price} for {x.it} in {home}. Was that too much? =6
Can one {x.act} {x.it}, or must I {x.act} {x.it}? =7
{x.they} {x.was} {u.own}, and before that {x.they} belonged to {m}. =8
@b>a
6) For {n} {price} you might have had {y.any}, and {w.any} to go with {y.it}.
7) One can {x.act} {x.it}, {a.call}; but {x.they} will never love you.
5) {c.i} would swear that {w.any} {w.am} a bishop, if it helped to sell {w.it}.
8) {m.the}! That explains the smell. {m.he} {m.vpd}, you know.
Keep {x.it} {x.spot}, {a.call}, and show {x.it} to nobody but {kin}.

= watch
@a>b
Hush, {b.call}! Who is that {x.spot}? I see a shadow. =1
Did you hear that, {b.call}? Something {w.went} {x.spot}. =1
There is somebody at the door, {b.call}. It may be {c.i}, or it may be {m}. =2
@b>a
1) It is only {w.a}, {a.call}. {w.they} {w.goes} there {often}. =3
1) I hear nothing but {x.the}, and {x.they} {x.am} not moving. =4
2) If it is {c.i}, let {c.him} in; if it is {m.the}, let us hide {y.the}. =5
It is the wind, {a.call}, or else {kin}, who {kin.vps}. =6
@a>b
3) {w.any} with boots on? I tell you, somebody is {x.acting} {x.the}!
Take {y.the}, {b.call}, and go and see. I will stay here and {a.vp}.
6) Wind does not {x.act} {x.any}, {b.call}.
4) Not moving? Then who {x.acted} {x.it} just now? I heard it with both ears.
5) It must be {m.the}. {c.i} never {c.vps} outside a door.
@b>a
3) There, you see: {w.a}, as I told you, and a very {w.adj} one.
5) It was {c.i} after all, {a.call}, with {n} {price} and a cold.
I went, I looked {x.spot}, and I came back {q.er} than before.
Nobody was there, {a.call}; only {z.the}, and the {weather}.
It was {c.i}, looking for {z.the}. I sent {c.him} home.

= dream
@a>b
I had a dream {past}, {b.call}, and {x.the} {x.was} in it. =1
Do you believe in dreams, {b.call}? I dreamt of {x.any} that {x.went}. =2
I slept badly, {b.call}. First I dreamt of {x.the}, and then of {kin}. =1
+
I stood {x.spot}, and {sky.was}, and I could not move; and there came {m}, who {m.vpd}.
I was in {home}, and yet it was not {home}, for all the {folks} there were {folks2}.
It seemed to me that I was {folk}, and that I had to {a.vp} before {meal}.
I dreamt that {c.i} {c.was} {image}, and that nobody found it strange.
+
Then {w.the} opened {w.its} mouth and said that {gen.habit}.
Whenever I tried to {x.act} {x.the}, {x.they} {x.went}, and a voice cried that {gen.habit}.
There were {n} {folks} at the door, and each of them wanted to {x.act} {x.it}.
I ran, but {y.the} ran after me, and {z.the} after {y.the}, as far as {town}.
+
And when I woke, {y.the} {y.was} {y.spot}, and {sky.was}.
At last I {x.acted} {x.it}, and {x.they} thanked me in {kin.own} voice.
I woke with {x.any} in my hand, and I have not slept since {weekday}.
@b>a
What it means? It means that you ate {b.dish} before you went to bed.
1) {x.the}, in a dream, always {x+mean} {virtue}. {kin} has a book about it.
2) I believe in them {often}. I dreamt of {x.any} once, and {past} I lost {y.any}.
I was there, {a.call}. I was {w.the}, and you would not listen to me.
You should tell it to {c.me}. {c.he} {c+meet} {b.fear} in every dream, and never {c+complain}.
@a>b
Laugh if you like; but I shall not {x.act} {x.it} until {until}.
{b.dish}, perhaps; but what did I eat before I dreamt of {x.the}?
Then it was you who said that about {virtue}, {b.call}. I had wondered.
I shall sleep {x.elsewhere} tonight, with {y.the} under my head.

= letter
@a>b
A letter has come, {b.call}, from {m} in {home}. Shall I read it?
Here is a letter that I cannot understand, {b.call}. It comes from {home}.
I have had word from {kin} in {home}, {b.call}. Listen to this.
+
"Honoured {b}, I write to you because {x.the} {x.goes}, and because {gen.past}.
"Dear friend, you will remember {x.the} that we {x.acted} together when {sky.was}.
"Dear {b}, since you left {home} nobody {x.acts} {x.any} any more, and {w.the} {w.goes} all night.
"Sir or Madam, whoever you may be, {x.own} {x.am} here, and {x.they} {x.goes}.
+
Everybody here is {q}, except for {folk}, who {folk.vps}.
Your {y} {y+arrive} here every {weekday}, and every {weekday} we send {y.it} back.
You ask after {w.the}. {w.they} {w.went} {past}, and has been {q} ever since.
We have {weather} from {meal} to {meal}, and {gen.habit}.
+
Send {n} {price} at once, or {x.the} will be {x.actpp}. Yours, in haste."
Do not answer this letter; the postman {postman.vps}. Your obedient servant."
Come soon, and bring {dish}; there is nothing here but {virtue}. Farewell."
I kiss your hand, and should be glad to have {n} {price} back for it. Farewell."
@b>a
Who signed it, {a.call}? It does not sound like {folk} to me.
Read me the part about {x.the} again. I did not like the tone.
I never was in {home} in my life. It must be meant for {c.me}.
{n} {price}? I would not send {n} {price} to the mayor of {home} herself.
Burn it, {a.call}, before {c.i} {c+read} it and {c+begin} to {c.vp}.
@a>b
Here, read it yourself; my eyes are {q} today.
I shall answer {future}, and say that {x.the} {x.am} {x.spot}, and that I am dead.
It is only a letter, {b.call}. {x.any} cannot {x.go} in a letter.
There is more on the back, but it is all about {y.the}.

= recipe
@a>b
How does one make {b.dish}, {b.call}? You must know it by heart. =1
Teach me how one {x.acts} {x.any}, {b.call}. {u} would never show me. =2
What is your secret, {b.call}? Nobody {x.acts} {x.any} as you do. =2
@b>a
1) You take {n2} {price} and {dish}, {a.call}, and a spoon that has never been lent to {folk}.
1) First you wash your hands, {a.call}, and then you lock the door, so that {c.i} cannot come in.
2) First you choose {x.any} that {x.have} never {x.gone}, {a.call}, and you put {x.it} {x.spot}.
2) You must rise before {meal}, {a.call}, when {sky.does}, and you must not speak to {x.it}.
+
1) Then you stir, slowly, as {folk} stirs who {folk.vps}, and you think of {home}.
1) You add salt, and pepper, and {n} tears, and you leave it alone until {sky.does}.
2) Then you {x.act} {x.it}, slowly, as {folk} {x.acts} {x.any} for a friend, and you count to {n3}.
2) You {x.act} {x.it} once for luck and once for {virtue}, and all the while you {b.vp}.
+
1) When it smells like {home} on a {weekday}, it is done; and if it does not, you send for {c.me}.
1) At the end you taste it, and throw it away, and eat {dish} instead.
2) When {x.they} {x.goes}, you stop; and if {x.they} never {x.goes}, you were too {q}.
2) At the end you show {x.it} to {c.me}, and when {c.he} {c+laugh}, you begin again.
@a>b
That is how {kin} did it, and {kin.he} {kin.vpd} for {n} days.
And how many times must one do it before one is {q}? =3
I did all that {past}, {b.call}, and {w.the} would not even look at it. =4
2) I had thought that one only had to {x.act} {x.it}.
1) And where, in all this {weather}, am I to find {dish}?
@b>a
3) {n2} times, if one has {virtue}; {n3} times, if one has not.
4) {w.any} is no judge of such things, {a.call}. Ask {c.me}.
What you still lack is {virtue}, {a.call}, and a good apron.
I have told you more than I told {kin}, {a.call}, and {kin.he} had {n} {x.count}.

= directions
@a>b
What is the way to {home}, {b.call}? I must be there by {meal}.
How does one come from here to {home}, {b.call}, with {x.any} on one's back?
You have been in {home}, {b.call}. Does one pass through {town}?
@b>a
You go straight on, {a.call}, until you meet {folk} with {y.any}; there you turn left.
You follow the river, {a.call}, as long as {sky.does}, and then you ask for {m}.
First you go to {town}, {a.call}, because nobody ever went to {home} without being sorry in {town2}.
There are {n2} roads, {a.call}, and {n} of them are under water.
+
Then you pass a house where {folk2} {folk2.vps}, and you do not look in.
After {n} miles there is a signpost, but it was put there by {c.me}, so you must not believe it.
Where the hedge ends there sits {w.a}. If {w.they} {w.goes}, you have gone too far.
At the bridge you pay {n} {price} to {folk2}, and {n2} if you have {x.any} with you.
+
And when you see a chimney that leans to the right, you are in {home}, or in {town2}.
The rest you will find with your nose, for on a {weekday} all of {home} smells of {dish}.
If you arrive at night, go {x.spot} and wait until somebody comes.
@a>b
Left at {y.the}, then, and left again at {w.the}. I shall be in {town} before I know it.
And is there no shorter way? {x.the} {x.am} heavy, and {sky.now}. =1
How long does it take? {c.i} told me that {c.he} walked it in {n} hours. =2
I think that I shall stay at home, {b.call}, and {a.vp}.
@b>a
1) There is; but it goes through {kin.own} kitchen, and {kin.he} {kin.vps}.
1) There was one until this year, {a.call}. Then somebody {x.acted} {x.any} in the middle of it.
2) {c.i} never walked further than {dish}. You will need {n3}.
Take {y.any} with you; one never knows. And greet {kin} from me.
Nobody comes to {home} by knowing the way, {a.call}. One comes there by {virtue}.

= describe
@a>b
What does {m} look like, {b.call}? You were in {home}; you must have met. =1
I am to meet {m} at the gate, {b.call}. How shall I know {m.him}? =1
Do you know {m}, {b.call}, of whom they all speak in {home}? =2
@b>a
1) {m.he} is as {q} as {image}, {a.call}, and {m.he} {m.vps}.
1) You will know {m.him} by {m.his} {x}, which {x.goes} whenever {m.he} speaks.
2) I do. {m.he} is the one who {m.vpd} when {sky.was}, and whom {c.i} {deed.ed} for it.
2) Know {m.him}? It was {m.he} who {x.acted} {kin.own} {x}, and never paid for {x.it}.
+
{m.he} has a nose like {y.any}, and a voice in which {w.any} could get lost.
{m.his} coat is {w.adj} and {m.his} hat is {y.adj}, and {m.he} carries {z.any} everywhere.
Those who love {m.him} say that {m.he} is {q2}; those who do not love {m.him} are {folks}.
{m.he} never {deed.s} anybody before {meal}, and after {meal} {m.he} {deed.s} everybody.
?
They say that {m.he} once was {folk}, but {m.he} says that {m.he} was {folk2}.
{gen.who}.
@a>b
It sounds like {kin}, {b.call}, only with {x.any}.
Then it was {m.the} whom I saw {past}, {a.vping}. No: it was I, in a mirror.
And does {m.he} still {m.vp}? I should like to see it. =3
I shall bring {n} {price}, and {w.the}, and hope for the best.
@b>a
3) {often}, and twice on {weekday}, {a.call}. People come from {town} to watch.
Tell {m.him} that I sent you, and {m.he} will {deed} you at once.
You cannot miss {m.him}, {a.call}; and if you do, {m.he} will not miss you.
Be polite to {m.him}, {a.call}. {m.he} has {deed.en} {n2} {folks} in {m.his} time.

= hour
@a>b
What is the hour, {b.call}? {c.i} should have been here by now. =1
Is it {n2} already, {b.call}, or is it still {n}? =2
How long have we waited for {c.me}, {b.call}? My feet say {n3} hours. =1
@b>a
2) It is {n}, {a.call}, for the clock in {town} has just struck {n2}.
2) It was {n2} when you asked me last, and you have asked me {n3} times.
1) It is late, {a.call}; but {c.i} {c.am} always late when {sky.does}.
1) {c.i} said that {c.he} would be here before {meal}, but {c.he} did not say on which day.
I tell the hour by {x.the}, {a.call}; and {x.they} {x.have} not {x.gone} since {weekday}. =3
@a>b
Then there is time enough to {x.act} {x.the} and to {a.vp}.
3) And when {x.they} {x.goes}, what does it mean? =4
If {c.i} {c.am} not here by {n3}, I shall {x.act} {x.the} without {c.him}.
Time is like {y.any}, {b.call}: the more one {y.acts} {y.it}, the sooner {y.they} {y.goes}.
@b>a
4) Then it is {n}, or else it is {weekday}.
Patience, {a.call}. {kin} waited {n} years for {folk}, and then it was the wrong one.
Do as you please; but if {c.i} {c+come}, I was against it.
In {town} they have no clocks at all, and they {x.act} {x.any} in the dark.

= lesson
@a>b
Repeat after me, {b.call}: {m} who {d1} {x.any} {d2} {x.it} for ever. =1
Today, {b.call}, you shall learn what {x.any} {x.am}, and why {x.they} {x.goes}. =2
Sit up, {b.call}, and tell me what we said {past} of {x.any}. =2
@b>a
1) {m} who {d1} {x.any} {d2} {y.any} for ever. =5
1) {m} who {d2} {x.any} {d1} {x.it} for ever. =6
1) I cannot say it, {a.call}. My tongue trips over {x.the}.
2) {x.any}, {a.call}, {x.am} a thing that {folks} {x.act} and {folks2} {x.act}.
2) We said that {x.any} {x.am} {x.grade}, and that {y.any} {y.am} {y.er}, and then I fell asleep.
2) I know only that {x.they} {x.goes}, and that {c.i} {c.have} one.
@a>b
5) {x.any}, not {y.any}! {image} could have said it better.
6) First {m.he} {d1} {x.it}, and then {m.he} {d2} {x.it}! Again, {b.call}, and slowly.
Very good, {b.call}; and now say it backwards. =3
2) And which is {x.er}, then, {x.any} or {y.any}? Think, {b.call}, before you {b.vp}. =4
You must practise it {often}, {b.call}, or you will end like {c.me}, who {c.vps}.
@b>a
3) Backwards I can only say {y}, {a.call}.
4) That depends on the {x}, {a.call}, and on who has {x.actpp} {x.it}.
4) {y.any}, when {sky.does}; otherwise {x.any}.
What use is it to {b.trade}, {a.call}, to know a thing like that?
I knew it once. Then I met {folk}, and forgot it.
"""

WITS = """
{virtue} is like {x.any}: whoever {x.acts} {x.it} must also {x.act} {x.it}.
Never {x.act} {x.any} for {folk} who {folk.vps}.
Where {virtue} sits at table, {virtue2} washes the plates.
It is easier to {x.act} {n3} {x.count} than to {one.vp} once.
A friend in {town} is worth {n} cousins at home.
{x.any} that never {x.goes} {x.was} never {x.actpp}.
Give {folk} {x.any}, and {folk2} will ask for {y.any}.
{w.any} and {folk} should never share {x.any}.
Who {x.acts} {x.any} at night will {y.act} {y.any} in the morning.
There are two kinds of people: those who {x.act} {x.any}, and those who {x.act} {x.it} first.
{virtue} walks to {town}; {virtue2} takes the coach and arrives on {weekday}.
One may borrow {x.any}, but never {virtue}.
When {sky.does}, even {folk} must {x.act} {x.any}.
The best {x} {x.am} always the {x} that somebody else {x.acts}.
If {virtue} were {w.any}, I should not {w.act} {w.it}.
{image} is better company than {folk} with {x.any}, and eats less.
A {q} neighbour is better than {x.graded}, and does not {x.go}.
In {town} they {x.act} {x.any} twice and {y.act} {y.any} never, and they are happy.
Better {x.any} at home than {y.any} in {town}.
To {x.act} {x.any} is work; to talk of {x.acting} {x.it} is wisdom.
{virtue} opens the door, but it is {virtue2} that stays to supper.
Two {folks} will agree on {virtue}, but never on {x.any}.
Nobody was ever hanged for {x.acting} {x.any}, though {folk} once came near it.
The moon looks down on {town} and {town2} alike, and lends {n} {price} to nobody.
Half the world is {q}, and the other half owns {x.any} that {x.goes}.
What {folk} calls {virtue}, {folk2} calls {virtue2}.
A promise made in {weather} should be kept in {weather2}.
Never {deed} {folk} whom you may some day have to {deed}.
Those who {deed} {folks} should not complain of being {same.en}.
He who has {x.any} fears {w.plural}; he who has none fears {folks}.
"""

# Why somebody did something: e is the one who did it, x the thing, p another person.
REASONS = """
because nobody else dared to do it
because {e.he} could not sleep
to please {p.me}
to annoy {p.me}
for a wager of {number} {prices}
because a dream had told {e.him} to do it
because {e.he} had lost a wager with {p.me}
because {e.he} mistook {x.it} for {other}
because {p.i} had promised {e.him} {number} {prices} for it
out of pity for {p.me}
because {e.he} {e.was} too proud to ask for help
because {p.i} had said that {e.he} could not
out of plain curiosity
by mistake, while {e.he} {e.was} looking for {other}
because it was {weekday} and {e.he} {e.was} bored
because the rain had left {e.him} nothing else to do
in a fit of {virtue}
to save {e.his} good name
to show {p.me} how it is done
because {p.i} begged {e.him} to do it
in order to impress a passing stranger
because {e.he} had read of it in a book
because {p.my} grandmother had forbidden it
instead of paying {e.his} debts
because {e.he} had eaten too much cheese
since there was no one to stop {e.him}
for want of anything better
because {p.i} laughed at {e.him}
"""

ENTRANCES = """
Enter {c}, out of breath.
Enter {c}, carrying {x.a}.
Enter {c} with {x.any} under {c.his} arm.
Enter {c}, followed by {w.a}.
Enter {c} through the window.
Enter {c}, {c.vping}.
Enter {c}, wet to the skin.
Enter {c} on tiptoe.
"""

BUSINESS = """
{a} looks {x.spot}.
{a} sits down beside {x.the}.
{a} points at {x.the}.
{a} hides {y.the} {y.spot}.
{b} yawns.
{b} drops {y.the}.
{a} and {b} shake hands.
A noise {x.spot}.
Thunder.
{w.a} crosses the stage.
{b} turns away.
{a} counts on {a.his} fingers.
A bell rings in the distance.
{b} examines {x.the}.
{a} opens the window.
{b} sneezes.
"""

EXITS = """
Exit {c}.
Exit {c}, with {x.the}.
Exit {c}, sighing.
Exit {c} in a hurry.
Exit {c}, {c.vping}.
Exit {c}, muttering about {virtue}.
"""

# What the third and the fourth have to say when the others have finished.
COMMENTS = """
I agree with {a.me}, as far as I listened, and with {b.me} about {x.the}.
{a} and {b} may {x.act} {x.the} as they please; I shall {c.vp}.
While you were talking, {a.call}, somebody {y.acted} {y.the}.
{b.call}, you forget {w.the}. Nobody ever thinks of {w.the}.
And I say that {gen.habit}.
You should both be ashamed. {kin} would have {x.actpp} {x.it} long ago.
May I say something? {wit}
I was silent until now, {a.call}, because {gen.habit}.
In {town} they would laugh at {a} and {b} and {x.the}.
If nobody minds, I will {y.act} {y.the} while {sky.now}.
I heard every word, {b.call}, and understood {n}.
Do not look at me, {a.call}. I have neither {x.actpp} {x.any} nor {deed.en} {b.me}.
{gen.past}; but you, {b.call}, would not believe it.
{a.call}, your {x} {x+keep} us all from {b.dish}.
There is a simple answer, {b.call}: {x.act} {x.it}, and {y.act} {y.it}, and go home.
I remember when {f.past}. We talked less in those days, and {x.acted} more.
Is it true, {a.call}, that {f.past}? Then I have lost {n} {price}.
I too had {x.any} once. {x.they} {x.went}, and now I have {y.any}.
{gen.that}; but then I am only {c.trade}.
Somebody mentioned {b.dish}, {b.call}, and since then I have not heard a word about {x.the}.
{a} is right, {b.call}, and you are right too; but who will {y.act} {y.the}?
Pardon me, {b.call}, but you are standing on {y.the}.
It seems to me, {a.call}, that {gen.gerund}.
{gen.if}; remember that, {b.call}.
If {a} is right, {b.call}, then {kin} was wrong, and {kin.he} never was.
Let me ask you both one thing: who {f.vd} {x.the}, if not {f.me}?
{a.call}, you sound like {m} whom I knew in {home}; {m.he} too {m.vpd}.
{b.call}, when {a} talks of {x.the}, I always think of {y.the}.
I would give {n} {price} for a little {virtue}, and {n2} for a little silence.
Has nobody thought of {c.dish}, {b.call}? I have, ever since {meal}.
You may be right, {a.call}; but {x.any} {x.am} not {y.any}.
So it goes with everything, {a.call}. {gen.when}.
As {c.trade} I can only say this: {gen.must}.
{gen.pastwhile}. I tell you this, {b.call}, as a warning.
It was the same in {town}, {b.call}. They {x.acted} {x.any}, and what came of it but {virtue}?
I hear {w.the} {x.spot}. {w.they} {w.goes} when people talk of {virtue}.
Do go on, {b.call}. I will {c.vp} until you have finished.
"""

GENS = """
= habit
{folk} who {folk.vps} {seldom} {folk.vps}
{folks} who {folks.vps} {seldom} {folks.vps}
{x.any} that {x.goes} by day {seldom} {x.goes} by night
those who {x.act} {x.any} {often} {seldom} {y.act} {y.any}
nobody {x.acts} {x.any} {often} unless {sky.does}
no {x} that {x.goes} {x.have} ever been {x.actpp} in {town}
{folk} may {x.act} {x.any}, but only {folk2} can {y.act} {y.any}
{x.any} which nobody {x.acts} will soon {x.go}
{folk}, however {q}, {seldom} {x.acts} {x.any}
people who {x.act} {y.any} instead of {x.any} deserve {virtue}
{virtue} {seldom} visits {folk} who {folk.vps}
{folks} are {q.er} than {folks2}, although they {folks.vps}
whoever {x.acts} {x.any} in {weather} must {y.act} {y.any} in {weather2}
neither {folk} nor {folk2} ever {x.acts} {x.any}
it may be {grade} to {one.vp}, but it is {grade.er} to {one.vp}
{folks} {deed} those whom they cannot {deed}
{folk} who {deed.s} everybody is {same.en} by nobody
nobody likes to be {deed.en} by {folk} who {folk.vps}
{folk} that has {x.actpp} {x.any} {seldom} {deed.s} {folk2} that has not

= past
{past} {s1} {s1.vpd}, and {s2} {s2.vpd}
{past} {s1} {x.acted} {x.full}, because {s1.he} had forgotten how to {y.act} {y.any}
{s1}, who {s1.vpd} {past}, {x.acted} {x.the} today
{s1} {x.acted} {x.the}, but {s1.he} did not {y.act} {y.the}
after {s1.he} had {x.actpp} {x.the}, {s1} {s1.vpd}
{s1} wanted to {x.act} {x.the}, but {s2} had {x.actpp} {x.it} already
{past} I met {folk} who had {x.actpp} {n} {x.count} and still {folk.vpd}
{s1} {s1.was} the first who ever {x.acted} {x.any} in {town}
{x.full} {x.was} {x.actpp} by {s1.me}, and {y.the} {y.was} {y.actpp} by {s2.me}
neither {s1} nor {s2} {x.acted} {x.the} {past}
{past} {s1} promised to {x.act} {x.the}, and then {s1.he} {s1.vpd}
{s1} said that {s1.he} would {x.act} {x.the}, if only {s2} would {y.act} {y.the}
{s1} had never {x.actpp} {x.any} before {s1.he} came to {town}
{past} {s1} {deed.ed} {s2.me}, and now {folk} {deed.s} them both
{s1} {s1.was} {deed.en} by {folk} because {s1.he} had {x.actpp} {x.any}
{s1}, whom {s2} {deed.ed} {past}, {s1.have} not {x.actpp} {x.any} since

= pastwhile
while {s1} {s1.was} {x.acting} {x.the}, {s2} {s2.was} {s2.vping}
when {sky.past}, {s1} {x.acted} {x.full}, although {s1.he} had never {x.actpp} {x.any} before
before {s1} could {x.act} {x.the}, {x.they} {x.went}, and {w.the} {w.went} too
as {s1} {s1.was} {s1.vping}, {folk} came by and {x.acted} {x.the}
whenever {s1} {x.acted} {x.any}, {s2} {s2.vpd}
{sky.was}, and {s1}, who {s1.was} {s1.vping}, saw nothing of it
since {s1} {s1.was} {s1.vping} at the time, nobody {x.acted} {x.the}

= if
if {sky.does}, {s1} will {s1.vp}; if not, {s2} will
if {s1} {x.acted} {x.any} {often}, {y.the} would not {y.go}
if {s1} had {x.actpp} {x.the} {past}, {x.they} would not have {x.gone}
unless somebody {x.acts} {x.the} before {meal}, {x.they} will {x.go}
should {sky.base}, {s1} must {x.act} {x.full}
if {s1} {deed.ed} {s2.me}, {s2} would {same} {s1.me} in return
if {x.any} could {folk.vp}, {folk} would be out of work
if {s1} {s1.vpd} less often, {s1.he} would have {x.actpp} {x.the} by now
even if {sky.does}, {s1} will not {x.act} {x.the} for less than {n} {price}

= when
when {sky.does}, {folk} {folk.vps}, and {folk2} {x.acts} {x.any}
as soon as {sky.does}, {s1} will {x.act} {x.the}
wherever {folk} goes, {folk.he} {folk.vps}
when {folk} {deed.s} {folks}, {folks} {same} {folk.him}
until {sky.does}, {s1} will neither {x.act} {x.any} nor {y.act} {y.any}
when {folks} grow {q}, they {folks.vps}
while {folk} {x.acts} {x.any}, {x.any} {x.acts} {folk.him}
every time that {sky.does}, {s1} must {x.act} {x.any}

= must
you must either {x.act} {x.the} or {b.vp}
one should never {x.act} {x.any} before {meal}
one must {deed} {folks} before one {deed.s} {folks2}
{x.any} as {x.grade} as {x.this1} must be {x.actpp} by {folk}
somebody ought to {x.act} {x.it} before {sky.does}
there is nothing that cannot be {x.actpp}, if {folk} helps
you need not {x.act} {x.it}; you need only {x.act} {x.it} a little

= gerund
{x.acting} {x.any} is {grade.er} than {y.acting} {y.any}
to {x.act} {x.any} is {grade}; to {x.act} {x.it} twice is {grade2}
{x.acting} {x.any} makes one {q}, and {y.acting} {y.any} makes one {q2}
{deed.ing} {folks} is {grade.er} than {deed.ing} {folks2}
there is no cure for {virtue} like {x.acting} {x.any}
he that is tired of {x.acting} {x.any} should try {y.acting} {y.any}
it is {grade.er} to {x.act} {x.any} than to {one.vp}
by {x.acting} {x.any} one learns {virtue}, and by {y.acting} {y.any} one loses it

= that
I {think} that {s2} {s2.vps}
{s1} {told} me that {s2} had {x.actpp} {x.the}
everybody knows that {c.i} {c.vps}
I {think} that {s1} {s1.was} {deed.en} by {folk} in {town}
it is no secret that {s1} {deed.ed} {s2.me} {past}
I never said that {x.the} {x.was} {x.grade}; I said that {s1} {x.acted} {x.it}
nobody believes that {s1} ever {x.acted} {x.any}
it is said in {town} that {s1} {s1.vpd}, and that {s2} paid for it
I doubt whether {s1} {s1.have} ever {x.actpp} {x.any}
the question is not whether {s1} {x.acted} {x.the}, but why {s1.he} {x.acted} {x.it}

= who
it is always those who {x.act} {x.any} who {folks.vps}
the {folk.noun} who {folk.vpd} {past} now {folk.vps}
there is {folk} in {town} who {folk.vps}, and {folk.his} neighbours never complain
{folk} whom nobody trusts will {x.act} {x.any} for {n} {price}
{folk} whose {x} {x.goes} should not {folk.vp}

= wish
I wish that I had never {x.actpp} {x.any}
I would rather {speaker.vp} than {x.act} {x.any} again
oh, to be {folk}, and to {folk.vp}, and never to {x.act} {x.any}
I would rather be {deed.en} by {folk} than {deed.en} by {folk2}
would that {s1} had {x.actpp} {x.the} instead
I want nothing but to {x.act} {x.any} and to {speaker.vp}
if I were {image}, I should be {q.er} than I am now
"""
