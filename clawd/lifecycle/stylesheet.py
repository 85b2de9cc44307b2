"""How the page of a session's context looks: in the light and in the dark, on a wide screen and on a telephone."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--paper:#fbfaf7;--card:#fff;--ink:#1d2126;--soft-ink:#626a73;--rule:#e4e1d9;
--window:#1b6f8f;--total:#4b6bb0;--cost:#8a6a1f;--recall:#2f7d57;--soft:#b9770e;--hard:#b83a3a;--handoff:#7a4bb0}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--card:#1b1f25;--ink:#e8e6e1;--soft-ink:#9aa3ad;--rule:#2e343c;
--window:#63bbdb;--total:#8faaf0;--cost:#d9b45c;--recall:#6fc79b;--soft:#e6ab4f;--hard:#f08080;--handoff:#bd97ee}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:clamp(1.2rem,4vw,3.5rem) clamp(1rem,4vw,2.5rem);background:var(--paper);
color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
h1,h2,h3,p,dl,dd,ul,figure{margin:0;padding:0}
h1{font-size:clamp(1.5rem,4.5vw,2.3rem);line-height:1.15;letter-spacing:-.02em;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin-bottom:.9rem}
h3{font-size:.78rem;font-weight:600;color:var(--soft-ink);margin-bottom:.4rem}
header{border-bottom:1px solid var(--rule);padding-bottom:1.6rem;margin-bottom:1.8rem}
.kind{font-size:.82rem;color:var(--soft-ink);margin-bottom:.35rem}
.goal{margin-top:.7rem;max-width:46rem;font-size:1.08rem;white-space:pre-wrap;overflow-wrap:anywhere}
.facts{margin-top:.9rem;color:var(--soft-ink);font-size:.9rem}
.status{display:inline-block;padding:.05rem .6rem;border:1px solid var(--window);border-radius:1rem;color:var(--window)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:1px;background:var(--card);
border:1px solid var(--rule);border-radius:.7rem;overflow:hidden}
.figures>div{box-shadow:0 0 0 1px var(--rule);padding:1rem 1.1rem}
.figures dt{font-size:.82rem;color:var(--soft-ink)}
.figures b{display:block;font-size:1.55rem;font-weight:600;letter-spacing:-.02em;font-variant-numeric:tabular-nums;
overflow-wrap:anywhere}
.figures span{font-size:.82rem;color:var(--soft-ink)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.2rem;
margin:1.2rem 0 2.6rem}
figure{background:var(--card);border:1px solid var(--rule);border-radius:.7rem;padding:1rem 1rem .6rem;min-width:0}
figcaption{font-weight:600;font-size:.92rem;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin-bottom:.5rem}
.key{font-weight:400;color:var(--soft-ink);display:inline-flex;align-items:center;gap:.4rem}
.key i{width:.7rem;height:.7rem;background:var(--window)}
.key.window i{height:2px;width:1rem}
.key.compact i{border-radius:50%;background:var(--card);border:2px solid var(--window)}
.key.handoff i{background:var(--handoff);transform:rotate(45deg) scale(.85)}
.empty{color:var(--soft-ink);padding:2.5rem 0;text-align:center}
svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--soft-ink);
font-variant-numeric:tabular-nums}
svg .grid{stroke:var(--rule)}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
svg .line.window{stroke:var(--window)}svg .line.total{stroke:var(--total)}svg .line.cost{stroke:var(--cost)}
svg .line.recall{stroke:var(--recall)}
svg .line.soft,svg .line.hard{stroke-width:1.5;stroke-dasharray:5 4}
svg .line.soft{stroke:var(--soft)}svg .line.hard{stroke:var(--hard)}
svg .name.soft{fill:var(--soft)}svg .name.hard{fill:var(--hard)}
svg .dot.window{fill:var(--window)}svg .dot.total{fill:var(--total)}svg .dot.cost{fill:var(--cost)}
svg .dot.recall{fill:var(--recall)}
svg .mark.compact circle{fill:var(--card);stroke:var(--window);stroke-width:2.5}
svg .mark.handoff path{fill:var(--handoff);stroke:var(--card);stroke-width:1.5}
.held{margin-bottom:2.6rem}
.held>div{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr));gap:1.4rem 2rem}
.held ul{list-style:none}
.held li{padding:.4rem 0;border-top:1px solid var(--rule);white-space:pre-wrap;overflow-wrap:anywhere}
.rows{overflow-x:auto;margin-bottom:2.6rem;border:1px solid var(--rule);border-radius:.7rem;background:var(--card)}
.rows:focus-visible{outline:2px solid var(--window);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;font-size:1.05rem;padding:1rem 1.1rem .6rem}
caption small{display:block;max-width:82vw;font-weight:400;color:var(--soft-ink);font-size:.86rem}
th,td{padding:.42rem .7rem;text-align:left;vertical-align:top;border-top:1px solid var(--rule);unicode-bidi:isolate}
th:first-child,td:first-child{padding-left:1.1rem}th:last-child,td:last-child{padding-right:1.1rem}
th{font-weight:600;color:var(--soft-ink);white-space:nowrap}.wide th{white-space:normal;vertical-align:bottom}
td{overflow-wrap:break-word}td.long{min-width:15rem;overflow-wrap:anywhere;white-space:pre-wrap}
td time,td.n{white-space:nowrap}td.n{text-align:right}
td.compact{color:var(--window);font-weight:600}td.handoff{color:var(--handoff);font-weight:600}
.none{color:var(--soft-ink)}
.state dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:0 2rem;font-size:.9rem}
.state dl>div{display:flex;justify-content:space-between;gap:1rem;padding:.35rem 0;border-top:1px solid var(--rule)}
.state dt{color:var(--soft-ink);white-space:nowrap}.state dd{text-align:right;overflow-wrap:anywhere;min-width:0}
footer{margin-top:2.6rem;color:var(--soft-ink);font-size:.82rem}
code{font:.95em ui-monospace,SFMono-Regular,Menlo,monospace}
@media (max-width:34rem){svg text{font-size:16px}.figures{grid-template-columns:1fr 1fr}}
@media print{body{max-width:none;padding:0}.rows{overflow:visible}figure,.figures{break-inside:avoid}}
"""
