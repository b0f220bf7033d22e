for(const box of document.querySelectorAll('.walk')){
const all=[...box.querySelectorAll('.v')],out=box.parentElement.querySelector('.readout');let at=-1;
const show=i=>{if(at>=0)all[at].classList.remove('at');at=Math.max(0,Math.min(all.length-1,i));
const one=all[at];one.classList.add('at');out.textContent=one.dataset.t};
box.addEventListener('keydown',e=>{const by={ArrowRight:1,ArrowLeft:-1,ArrowDown:10,ArrowUp:-10};
if(!all.length||!(e.key in by||e.key==='Home'||e.key==='End'))return;e.preventDefault();
show(e.key==='Home'?0:e.key==='End'?all.length-1:at+by[e.key]);
all[at].scrollIntoView({block:'nearest'})});
box.addEventListener('mouseover',e=>{const i=all.indexOf(e.target.closest('.v'));if(i>=0)show(i)})}
const wait=Number(document.body.dataset.reload);
if(wait)setTimeout(()=>location.reload(),1000*wait);
