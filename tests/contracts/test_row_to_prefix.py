"""What the sampler's visible row means for the commit: twelve shapes, and an error instead of a guess."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn import transaction
from fixtures.gdn.comparison import require_number
from fixtures.gdn.operations import Operation

D = [11, 12, 13]
SHAPES = {
    "no visible token": ([-1, -1], D, {}, 0),
    "draft-only row": ([11, 12], D, {"draft_only": True}, 2),
    "draft-only row longer than the drafts": ([11, 12, 13, 14], D, {"draft_only": True}, 3),
    "shifted full accept": ([12, 13], D, {}, 2),
    "all drafts and the bonus": ([11, 12, 13, 99], D, {}, 3),
    "suppressed tail": ([11, 12, 99], D, {"tail_suppressed": True}, 2),
    "suppressed tail beyond the drafts": ([11, 12, 13, 98, 99], D, {"tail_suppressed": True}, 3),
    "replacement after two drafts": ([11, 12, 99], D, {}, 2),
    "replacement after the first of three drafts": ([11, 99], D, {}, 1),
    "replacement at once, with placeholders": ([99, -1, -1, -1], D, {}, 0),
    "an accepted draft with id 0": ([0, 12, 99], [0, 12, 13], {}, 2),
    "longer than anything possible": ([11, 12, 13, 98, 99], D, {}, None),
}


def ask(subject, visible, scheduled, draft_only=False, tail_suppressed=False):
    try:
        return subject.visible_prefix(
            visible, scheduled, draft_only=draft_only, tail_suppressed=tail_suppressed
        )
    except ValueError:
        return None


@pytest.mark.parametrize("name", SHAPES, ids=lambda n: n.replace(" ", "-").replace(",", ""))
def test_a_visible_row_commits_its_prefix(under_test, name):
    """The replacement's or the bonus token's own state cannot exist yet: it has not been projected."""
    under_test.needs(Operation.VISIBLE_PREFIX)
    visible, scheduled, flags, expected = SHAPES[name]
    require_number(name, ask(under_test.subject, visible, scheduled, **flags), expected)


@given(data=st.data())
def test_any_visible_row_commits_what_the_model_says(under_test, data):
    """Generated rows over a small vocabulary, so that shifted accepts happen."""
    under_test.needs(Operation.VISIBLE_PREFIX)
    scheduled = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5), label="scheduled")
    anything = st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=8)
    accepted = st.integers(0, len(scheduled)).map(lambda n: scheduled[:n])
    visible = data.draw(st.one_of(anything, st.builds(operator.add, accepted, anything)), label="visible")
    flags = {
        "draft_only": data.draw(st.booleans(), label="draft only"),
        "tail_suppressed": data.draw(st.booleans(), label="tail suppressed"),
    }
    try:
        expected = transaction.visible_prefix(visible, scheduled, **flags)
    except ValueError:
        expected = None
    require_number(
        f"{visible} of {scheduled}", ask(under_test.subject, visible, scheduled, **flags), expected
    )
