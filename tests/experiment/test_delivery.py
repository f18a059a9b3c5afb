from dataclasses import replace

from holdfast.experiment.delivery import (
    Books,
    Moment,
    Numbering,
    Patience,
    Standing,
    decode_books,
    encode_books,
    told,
    undelivered,
)
from holdfast.scheduler.events import Suggested
from holdfast.trial.lifecycle import Reported
from holdfast.trial.trial import Place, Status, Trial, TrialSpec

SPEC = TrialSpec(trial_id="a_0", index=0, name="train_a_0", dirname="d", config={})
TRIAL = Trial(spec=SPEC, status=Status.RUNNING, attempt=1, place=Place(pid=1))


def row(number: int, iteration: int, attempt: int = 1) -> Moment:
    trial = replace(TRIAL, iteration=iteration, attempt=attempt)
    return Moment(trial=trial, hook="on_trial_result", number=number, row=number)


def read(books: Books, *moments: Moment) -> list[bool]:
    return [books.read(moment) for moment in moments]


def spans(books: Books) -> list[str]:
    return [str(span) for span in books.accounts["a_0"].waiting]


def report(iteration: int) -> Reported:
    return Reported(
        trial_id="a_0",
        attempt=1,
        iteration=iteration,
        metrics={},
        timestamp=0.0,
        time_this_iter_s=0.0,
        time_total_s=0.0,
    )


def test_moments_are_numbered_by_trial_in_the_order_of_the_journal() -> None:
    numbering, now = Numbering(), TRIAL
    assert numbering.moments(Suggested(spec=SPEC), None, now) == []
    found = []
    for iteration in (1, 2):
        before, now = now, replace(now, iteration=iteration)
        found += numbering.moments(report(iteration), before, now)
    ended = replace(now, status=Status.TERMINATED)
    found += numbering.moments(None, now, ended)
    assert [(one.hook, one.number, one.row) for one in found] == [
        ("on_trial_result", 1, 1),
        ("on_trial_result", 2, 2),
        ("on_trial_complete", 3, 2),
    ]


def test_what_was_given_counts_as_delivered_when_it_is_acknowledged() -> None:
    books = Books()
    moments = [row(1, 1), row(2, 2), row(3, 3)]
    assert read(books, *moments) == [True, True, True]
    books.gave(moments[0])
    assert spans(books) == ["1-3"]
    books.acknowledge()
    assert spans(books) == ["2-3"]


def test_a_trial_that_a_tracker_holds_back_is_not_acknowledged() -> None:
    books = Books()
    read(books, row(1, 1))
    books.gave(row(1, 1))
    books.acknowledge(held=["a_0"])
    assert spans(books) == ["1"]
    books.acknowledge()
    assert books.unsettled() == {}


def test_repeated_iterations_are_listed_by_their_attempt() -> None:
    books = Books()
    read(books, row(1, 1), row(2, 2), row(3, 2, attempt=2), row(4, 3, attempt=2))
    assert spans(books) == ["1-2", "2-3 (attempt 2)"]


def test_a_later_courier_goes_on_behind_what_was_acknowledged() -> None:
    books = Books()
    read(books, row(1, 1), row(2, 2))
    books.gave(row(1, 1))
    books.acknowledge()
    later = decode_books(encode_books("e", books), "e")
    assert read(later, row(1, 1), row(2, 2)) == [False, True]
    assert spans(later) == ["2"]


def test_what_was_refused_is_tried_again_by_a_later_courier() -> None:
    books = Books()
    read(books, row(1, 1), row(2, 2), row(3, 3))
    books.gave(row(1, 1))
    books.refuse(row(2, 2), "too long")
    books.gave(row(3, 3))
    books.acknowledge()
    (listed,) = undelivered(books, {})
    assert listed["iterations"] == []
    assert listed["refused"] == [{"iterations": "2", "why": "too long"}]
    later = decode_books(encode_books("e", books), "e")
    assert read(later, row(1, 1), row(2, 2), row(3, 3)) == [False, True, True]


def test_the_cursor_of_another_experiment_counts_for_nothing() -> None:
    books = Books()
    read(books, row(1, 1))
    books.gave(row(1, 1))
    books.acknowledge()
    assert decode_books(encode_books("e", books), "other").accounts == {}


def test_long_lists_are_told_in_a_line() -> None:
    missing = [
        {"name": f"t{at}", "iterations": ["1-9"], "refused": [], "only_its_end": False}
        for at in range(7)
    ]
    assert told(missing[:1]) == "t0: iterations 1-9"
    assert told(missing).endswith("; and 2 other trials")


def test_waits_grow_to_a_bound_and_are_spread_at_random() -> None:
    standing = Standing(patience=Patience(first_s=1, longest_s=8))
    waits = []
    for _ in range(5):
        standing = standing.after_failure(now=100, chance=0)
        waits.append(standing.not_before - 100)
    assert waits == [1, 2, 4, 8, 8]
    assert standing.after_failure(now=0, chance=1).not_before == 4
    assert standing.after_success() == Standing(patience=standing.patience)


def test_a_refusal_gets_some_tries_and_the_next_one_a_single_one() -> None:
    standing = Standing(patience=Patience(tries=2))
    assert not standing.is_last_try
    standing = standing.after_failure(now=0, chance=0)
    assert standing.is_last_try
    assert standing.after_refusal().is_last_try
    assert not standing.after_refusal().after_success().is_last_try
