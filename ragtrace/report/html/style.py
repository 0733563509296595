"""How the page looks: in light and dark, on a phone and on a wall."""

from __future__ import annotations

from typing import Final

CSS: Final = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#5b6676;--line:#e2e6ec;--accent:#2f62c9;
--band:#2f62c92b;--bad:#b3261e;--bad-soft:#fdeceb;--good:#1c7a44;--good-soft:#e8f6ee;--quiet-soft:#eef1f5;
--mark:#ffd9d6;--mark-ink:#7d130d;--held:#8a5a00}
@media (prefers-color-scheme:dark){:root{--page:#11151b;--card:#1a2029;--ink:#e7ebf1;--soft:#9ba7b7;--line:#2c3440;
--accent:#84aeff;--band:#84aeff33;--bad:#ff8f86;--bad-soft:#3a1d1d;--good:#6fd598;--good-soft:#15301f;
--quiet-soft:#222a35;--mark:#6b2320;--mark-ink:#ffe3e0;--held:#e9b75a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%;
overflow-wrap:anywhere}
main{max-width:1080px;margin:0 auto;padding:28px 20px 56px}
header{display:flex;flex-wrap:wrap;gap:2px 16px;align-items:baseline;margin-bottom:16px}
header p{min-width:0}
h1{font-size:1rem;margin:0;letter-spacing:.01em}
h2{font-size:1.15rem;margin:40px 0 4px}
h3{font-size:1rem;margin:0}
p{margin:0 0 8px}
.quiet,.lead,header p,td small,th small{color:var(--soft)}
.lead{max-width:72ch;margin-bottom:12px}
header p,small{font-size:.875rem;margin:0}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px;margin-top:12px;min-width:0}
.hero{border-left-width:6px;padding:24px}
.hero.bad{border-left-color:var(--bad)}.hero.good{border-left-color:var(--good)}.hero.quiet{border-left-color:var(--soft);
color:inherit}
.hero strong.title{display:block;font-size:clamp(1.4rem,4.6vw,2.05rem);line-height:1.2;font-weight:650;
letter-spacing:-.01em}
.hero.bad strong.title{color:var(--bad)}.hero.good strong.title{color:var(--good)}
.hero>p{max-width:74ch;margin:8px 0 18px}
.hero>.meta{margin:12px 0 0}
.figures{display:flex;flex-wrap:wrap;gap:12px 36px;margin:0 0 20px;padding:0}
.figures div{min-width:0}
.figures dt{color:var(--soft);font-size:.875rem}
.figures dd{margin:0;font-size:1.5rem;font-weight:620;line-height:1.25}
.figures dd small{display:block;font-weight:400}
.chart{margin:4px 0 0}
.plot{position:relative;height:210px;margin-left:3.4rem}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.plot path{fill:none;stroke:none}
.plot .grid{stroke:var(--line);stroke-width:1}
.plot .band{fill:var(--band)}
.plot .bar{stroke:var(--band);stroke-width:7}
.plot .line{stroke:var(--accent);stroke-width:2.2;stroke-linejoin:round}
.plot .dots{stroke:var(--accent);stroke-width:5.5;stroke-linecap:round}
.plot .before-band{fill:var(--soft);opacity:.16}
.scored{position:relative;height:22px;margin:10px 0 0 3.4rem;border-bottom:1px solid var(--line)}
.scored s{position:absolute;bottom:0;background:var(--soft);opacity:.4;border-radius:1px 1px 0 0;text-decoration:none}
.plot .before{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:6 5}
.plot .rollout{stroke:var(--held);stroke-width:1.5;stroke-dasharray:2 3}
.rollouts{position:relative;height:1.3rem;margin-left:3.4rem}
.rollouts span{position:absolute;color:var(--held);font-size:.8125rem;line-height:1.3;white-space:nowrap;
transform:translateX(-.35rem)}
.levels span,.times span{position:absolute;color:var(--soft);font-size:.8125rem;line-height:1;white-space:nowrap}
.levels span{right:calc(100% + 10px);transform:translateY(50%)}
.times{position:relative;height:1.5rem;margin:9px 0 0 3.4rem}
.times span{transform:translateX(-50%)}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9375rem}
th{font-weight:500;text-align:left;color:var(--soft);font-size:.8125rem;padding:4px 12px 6px 0;vertical-align:bottom}
td{border-top:1px solid var(--line);padding:8px 12px 8px 0;vertical-align:top;overflow-wrap:anywhere}
td:last-child,th:last-child{padding-right:0}
td:first-child{min-width:8.5em}
td.n,th.n{text-align:right;white-space:nowrap;overflow-wrap:normal}
td small{display:block}
td.bad{color:var(--bad);font-weight:600}td.good{color:var(--good);font-weight:600}
.part{padding:9px 0;border-top:1px solid var(--line)}
.part>div:first-child{display:flex;justify-content:space-between;gap:12px;align-items:baseline}
.part span:first-child{overflow-wrap:anywhere;min-width:0}
.part b.v{white-space:nowrap;font-weight:620}
.whisker{position:relative;height:10px;margin:5px 0 2px;background:
linear-gradient(var(--line),var(--line)) center/100% 1px no-repeat}
.whisker i{position:absolute;top:3px;height:4px;border-radius:2px;background:var(--accent);opacity:.38}
.whisker b{position:absolute;top:0;width:10px;height:10px;margin-left:-5px;border-radius:50%;background:var(--accent)}
.whisker u{position:absolute;top:0;bottom:0;width:1px;background:var(--soft);opacity:.7}
.whisker.two{height:20px;background:linear-gradient(var(--line),var(--line)) center/100% 1px no-repeat}
.whisker.two i{top:13px}.whisker.two b{top:10px}
.whisker.two i.was{top:3px;background:var(--soft)}
.whisker.two b.was{top:0;background:var(--card);border:2px solid var(--soft)}
.part small{display:block}
.axis{position:relative;height:1.3rem;margin:2px 0 0;border-top:1px solid var(--line);padding:0}
.axis span{position:absolute;top:4px;transform:translateX(-50%);color:var(--soft);font-size:.75rem;line-height:1;
white-space:nowrap}
.axis span:first-child{transform:none}.axis span:last-child{transform:translateX(-100%)}
.spread{margin-top:8px}
.shares{display:flex;align-items:flex-end;gap:2px;height:44px}
.shares s{flex:1;background:var(--accent);opacity:.42;border-radius:2px 2px 0 0;text-decoration:none}
.box{position:relative;height:18px;margin-top:4px}
.box u{position:absolute;top:8px;height:2px;background:var(--soft)}
.box i{position:absolute;top:2px;height:14px;border-radius:3px;background:var(--band);border:1px solid var(--accent)}
.box b{position:absolute;top:0;height:18px;width:3px;margin-left:-1.5px;background:var(--ink);border-radius:2px}
.box em{position:absolute;top:5px;width:8px;height:8px;margin-left:-4px;background:var(--card);border:2px solid
var(--ink);transform:rotate(45deg)}
.ends{display:flex;justify-content:space-between;color:var(--soft);font-size:.75rem}
.problem>header{justify-content:space-between;margin:0 0 12px;gap:4px 16px}
.problem h3{overflow-wrap:anywhere;flex:1 1 60%;min-width:0}
.score{white-space:nowrap;color:var(--bad);font-weight:620}
.sides{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:20px}
.sides>div{min-width:0}
.label{color:var(--soft);font-size:.8125rem;margin:0 0 4px}
.text{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}
mark{background:var(--mark);color:var(--mark-ink);border-radius:3px;padding:1px 2px;text-decoration:underline;
text-decoration-thickness:2px;text-underline-offset:3px}
.passage{border-left:3px solid var(--line);padding:0 0 0 12px;margin:0 0 12px;font-size:.9375rem}
.passage.held{border-left-color:var(--held)}
.passage.held .label{color:var(--held)}
.passage .text{max-height:15em;overflow:auto}
details summary{cursor:pointer;color:var(--soft);font-size:.875rem;margin:0 0 8px}
.meta{color:var(--soft);font-size:.8125rem;margin:12px 0 0;overflow-wrap:anywhere}
.notes{margin:14px 0 0;padding-left:1.2em;color:var(--soft)}
footer{margin-top:40px;color:var(--soft);font-size:.875rem;max-width:78ch}
@media (max-width:640px){main{padding:16px 12px 40px}.card{padding:14px;border-radius:10px}.hero{padding:16px}
.sides{grid-template-columns:minmax(0,1fr)}.plot{height:170px;margin-left:2.9rem}.times,.scored{margin-left:2.9rem}
.levels span{right:calc(100% + 6px);font-size:.75rem}.times span:nth-child(even){display:none}
table.stack thead{display:none}.stack tr{display:block;border-top:1px solid var(--line);padding:6px 0}
.stack tr:first-child{border-top:0}.stack td{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 12px;
border:0;padding:3px 0;text-align:right}.stack td:first-child{font-weight:600;text-align:left}
.stack td[data-label]::before{content:attr(data-label);color:var(--soft);flex:1 1 auto;text-align:left}
.stack td small{flex:1 0 100%}.stack td:first-child small{flex:0 1 auto;font-weight:400}
.figures{gap:10px 24px}.figures dd{font-size:1.25rem}}
@media print{body{background:#fff}.card{break-inside:avoid}}
"""
