"""What a study is of, and that it refuses others: with a command that takes no time."""

import itertools

import pytest
from support import module

import blklab
from blklab import question, tuning
from blklab.question import Question

SPACE = {"scheduler": ["none", "bfq"], "nr_requests": [4, 8, 16]}
GOALS = ["a.read.mean"]


@pytest.fixture
def without_runs(monkeypatch):
    """Tuning whose settings have figures at once, and a program of a known name."""

    def figures(self, setting, repeats):
        self.runs += repeats
        value = float(setting["nr_requests"])
        return tuning._Figures([value], [0.0], [False], [True] * 0)

    def final(self, settings):
        found = [tuning.Found(setting, (1.0,), (0.0,)) for setting in settings]
        return tuning._Final(found[0], found[1:2], "")

    monkeypatch.setattr(tuning._Tried, "figures", figures)
    monkeypatch.setattr(tuning._Tried, "final", final)
    monkeypatch.setattr(question._blklab, "program", lambda: "p 1", raising=False)


def asked(tmp_path, **changes):
    options = {"storage": f"sqlite:///{tmp_path}/t.db", "study": "mine", "trials": 2}
    options |= changes
    space = options.pop("space", SPACE)
    return blklab.tune(options.pop("job", "[a]\nrw=read\n"), space, GOALS, **options)


def test_trials_have_the_values_themselves(tmp_path, without_runs):
    module("optuna")
    space = {"scheduler": ["none", "bfq"], "nr_requests": [8, 4, 16], "depth": [2, 4, 6]}
    tuned = asked(tmp_path, space=space, trials=12)
    for trial in tuned.study.trials:
        for key, values in space.items():
            assert trial.params[key] in values
    assert tuned.study.trials[0].params == {"scheduler": "none", "nr_requests": 8, "depth": 2}
    assert len({tuple(trial.params.values()) for trial in tuned.study.trials}) > 3


def test_a_study_goes_on_with_its_own_question_alone(tmp_path, without_runs, capsys):
    module("optuna")
    asked(tmp_path)
    assert "study mine is kept in sqlite:///" in capsys.readouterr().err
    assert len(asked(tmp_path).study.trials) == 4
    assert "2 trials so far" in capsys.readouterr().err
    grown = {**SPACE, "nr_requests": [4, 6, 8, 16]}
    with pytest.raises(blklab.UsageError) as refused:
        asked(tmp_path, space=grown)
    said = str(refused.value)
    assert "its space: nr_requests is [4, 8, 16], not [4, 6, 8, 16]" in said
    assert "study=" in said and "storage=" in said
    for changes, said in [
        ({"job": "[a]\nrw=write\n"}, "its job is a text "),
        ({"drive": "mx100-256"}, "its drive is not given, not mx100-256 "),
        ({"machine": "generic-8"}, "its machine is not given, not generic-8 "),
        ({"subject_to": ["a.iops > 1"]}, "its limits is []"),
        ({"memory": "1G"}, "its option memory is not given, not 1G"),
        ({"seed": 2}, "its option seed is 1, not 2"),
    ]:
        with pytest.raises(blklab.UsageError) as refused:
            asked(tmp_path, **changes)
        assert said in str(refused.value)


def test_another_program_and_a_study_that_is_not_ours_are_refused(
    tmp_path, without_runs, monkeypatch
):
    optuna = module("optuna")
    asked(tmp_path)
    monkeypatch.setattr(question._blklab, "program", lambda: "p 2", raising=False)
    with pytest.raises(blklab.UsageError, match="its program is p 1, not p 2"):
        asked(tmp_path)
    storage = f"sqlite:///{tmp_path}/t.db"
    other = optuna.create_study(storage=storage, study_name="other")
    other.tell(other.ask(), 1.0)
    with pytest.raises(blklab.UsageError, match="does not say what it is of"):
        asked(tmp_path, study="other")


def test_without_a_name_each_question_has_its_study(tmp_path, without_runs, monkeypatch):
    module("optuna")
    monkeypatch.chdir(tmp_path)
    one = asked(tmp_path, storage=None, study=None)
    again = asked(tmp_path, storage=None, study=None)
    other = asked(tmp_path, storage=None, study=None, drive="mx100-256")
    assert (tmp_path / "blklab-tune.db").exists()
    assert one.study.study_name == again.study.study_name != other.study.study_name
    assert len(again.study.trials) == 4
    assert f"study {again.study.study_name} in sqlite:///blklab-tune.db" in str(again)


def test_in_memory_nothing_is_kept(tmp_path, without_runs, monkeypatch, capsys):
    module("optuna")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert len(asked(tmp_path, storage="memory", study=None).study.trials) == 2
    assert not list(tmp_path.iterdir())
    assert "kept" not in capsys.readouterr().err


def test_a_value_is_named_once(tmp_path, without_runs):
    module("optuna")
    with pytest.raises(blklab.UsageError, match="nr_requests: 4 is named twice"):
        asked(tmp_path, space={"nr_requests": [4, 8, 4]})


def test_what_a_file_has_counts_and_its_place_does_not(tmp_path, without_runs):
    facts = []
    for folder, text in [("a", "x"), ("b", "x"), ("c", "y")]:
        (tmp_path / folder).mkdir()
        job = tmp_path / folder / "my.fio"
        job.write_text(text)
        facts.append(Question.of(job, {}, GOALS, [], {}).facts)
    assert facts[0] == facts[1] != facts[2]


def test_schedulers_in_python_count_by_their_code(without_runs):
    def of(source):
        choices = {"scheduler": {"mine": source}}
        return Question.of("[a]\n", choices, GOALS, [], {}).facts["space: scheduler"]

    class One(blklab.Scheduler):
        """One."""

    class Two(blklab.Scheduler):
        """Two."""

    for one, two in itertools.permutations((One, Two)):
        assert of(one) == of(one) != of(two)
