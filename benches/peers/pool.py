"""Pools the paired per-round ratios of several result files: median and a bootstrap 95% interval. pool.py KEY
BASE FILE..."""

import json, random, statistics as S, sys

key, base, files = sys.argv[1], sys.argv[2], sys.argv[3:]
R = {}
for f in files:
    raw = json.load(open(f))['raw']
    b = {(x['round'], x.get('rate'), x.get('size')): x[key] for x in raw if x['peer'] == base and x.get(key)}
    for x in raw:
        k = (x['round'], x.get('rate'), x.get('size'))
        if x.get(key) and k in b:
            R.setdefault(x['peer'], []).append(x[key] / b[k])
random.seed(1)
for p, v in sorted(R.items(), key=lambda t: S.median(t[1])):
    bs = sorted(S.median(random.choices(v, k=len(v))) for _ in range(2000))
    print(f'{p:14} n={len(v):3}  median {S.median(v):.3f}  95% [{bs[50]:.3f}, {bs[1949]:.3f}]')
