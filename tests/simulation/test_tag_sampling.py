"""Estimates under rates that depend on the calls' tags: over all calls, and of each tag, whatever its rate."""

from __future__ import annotations

import math

import numpy as np

from ragtrace.estimates import Moments, estimate_mean, judged_moments, unjudged_moments

REPLICATES = 1_000
CALLS = 8_000
TENANTS = 20
SEED = 42
SLACK = 2 * math.sqrt(0.94 * 0.06 / REPLICATES)


def times(moments: Moments, number: int) -> Moments:
    """Return the sums of *number* calls that have the same *moments*."""
    return Moments(*(number * value for value in moments.values()))


def test_intervals_cover_whatever_rate_a_tag_has() -> None:
    """20 tenants of unequal traffic; the worst is judged always, one half of the time, the others at 5 %.

    Coverage of the rate over all calls, and of each tenant with at least 30 judged calls.
    """
    rng = np.random.default_rng(SEED)
    share = 1.0 / np.arange(1, TENANTS + 1)
    share /= share.sum()
    bad = np.linspace(0.05, 0.1, TENANTS)
    bad[3], bad[0] = 0.4, 0.2
    p = np.full(TENANTS, 0.05)
    p[3], p[0] = 1.0, 0.5
    truth = float((share * bad).sum())
    covered, errors = 0, 0.0
    of_tenant = np.zeros((TENANTS, 2))
    for _ in range(REPLICATES):
        calls = rng.multinomial(CALLS, share)
        judged = rng.binomial(calls, p)
        found_bad = rng.binomial(judged, bad)
        total = Moments()
        for tenant in range(TENANTS):
            sums = times(judged_moments(1.0, float(p[tenant])), int(found_bad[tenant]))
            sums += times(judged_moments(0.0, float(p[tenant])), int(judged[tenant] - found_bad[tenant]))
            sums += times(unjudged_moments(0.0), int(calls[tenant] - judged[tenant]))
            total += sums
            if judged[tenant] >= 30:
                own = estimate_mean(sums)
                assert own.low is not None
                assert own.high is not None
                of_tenant[tenant] += (own.low <= bad[tenant] <= own.high, 1)
        found = estimate_mean(total)
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
        errors += found.value - truth
    assert abs(errors / REPLICATES) < 0.001, "unbiased over all tags"
    assert covered / REPLICATES >= 0.94 - SLACK
    hits, tries = of_tenant[of_tenant[:, 1] >= 500].T
    assert len(tries) >= 3
    assert (hits / tries).min() >= 0.92
    assert hits.sum() / tries.sum() >= 0.94
