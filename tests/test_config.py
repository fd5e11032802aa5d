"""Settings: documented, checked at the door, and default < preset < given one by one."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from relfrog.config import (
    SIZES,
    Config,
    default_settings,
    parse_settings,
    presets,
    read_preset,
    resolve,
)
from relfrog.errors import UsageError
from relfrog.setting_values import CHOICES, RANGES

NAMES = [entry.name for entry in fields(Config)]
#: A value of every setting that is not its default.
OTHER: dict[str, Any] = {
    **{name: next(c for c in choices if c != getattr(Config(), name))
       for name, choices in CHOICES.items()},
    **{name: (type(getattr(Config(), name)))(low if low != getattr(Config(), name) else high)
       for name, (low, high) in RANGES.items()},
    "fd_orthonormal": True, "fd_final": True, "fd_training": True, "fd_false_negatives": True,
    "edge_bias": True, "gate_norm": True, "seed_context": False, "refit": "on", "distributed": True,
    "text": "hash",
    "threshold": "cost:5",
}  # fmt: skip


def test_every_setting_is_documented_in_its_order() -> None:
    text = Config.__doc__ or ""
    documented = re.findall(r"^        (\w+): ", text.split("Attributes:")[1], re.M)
    assert documented == NAMES


def test_every_setting_is_checked() -> None:
    kinds = {entry.name: type(entry.default) for entry in fields(Config)}
    for name, kind in kinds.items():
        assert (name in RANGES) == (kind in (int, float)), name
        assert (name in CHOICES) == (kind is str and name not in ("text", "threshold")), name
        assert kind in (int, float, str, bool)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_value_names_the_setting(name: str) -> None:
    wrong: list[Any] = [None, [1], {}]
    if name in CHOICES:
        wrong += ["nonsense", 7, ""]
    if name in RANGES:
        low, high = RANGES[name]
        wrong += [low - 1, high * 1.01 + 1, "x", "", "nan", "inf", "-inf", True]
    if isinstance(getattr(Config(), name), int):
        wrong += [1.5, "1.5"]
    if isinstance(getattr(Config(), name), bool):
        wrong += ["maybe", 2]
    for value in wrong:
        with pytest.raises(UsageError, match=rf"^{name} must be ") as caught:
            Config(**parse_settings({name: value}))
        assert "got" in str(caught.value)
    if name != "text":
        with pytest.raises(UsageError, match=rf"^{name} must be "):
            Config(**{name: "nonsense"})
    with pytest.raises(UsageError, match=rf"^{name} must be "):
        Config(**{name: None})


@pytest.mark.parametrize("name", NAMES)
def test_text_is_read_as_the_value_that_it_shows(name: str) -> None:
    for value in (getattr(Config(), name), OTHER[name]):
        given = parse_settings({name: str(value)})
        assert given == {name: value}
        assert type(given[name]) is type(value)


def test_whole_numbers_stay_exact() -> None:
    for text in ("9007199254740993", 9007199254740993):
        assert parse_settings({"seed": text}) == {"seed": 9007199254740993}
    assert parse_settings({"epochs": "1e3"}) == {"epochs": 1000}
    assert parse_settings({"epochs": 3.0}) == {"epochs": 3}


def test_numbers_of_numpy_are_numbers() -> None:
    numbers = {"lr": np.float64(0.5), "epochs": np.int64(3), "fd_final": np.bool_(True)}
    given = parse_settings(numbers)
    assert given == {"lr": 0.5, "epochs": 3, "fd_final": True}
    assert [type(value) for value in given.values()] == [float, int, bool]
    assert Config(lr=np.float64(0.5)) == Config(lr=0.5)


def test_words_for_true_and_false() -> None:
    for word in ("true", "Yes", "ON", "1", 1, True):
        assert parse_settings({"fd_final": word}) == {"fd_final": True}
        assert parse_settings({"refit": word, "history": word}) == {"refit": "on", "history": "on"}
    for word in ("False", "no", "off", "0", 0, False):
        assert parse_settings({"fd_final": word}) == {"fd_final": False}
        assert parse_settings({"refit": word}) == {"refit": "off"}


@pytest.mark.parametrize(
    ("name", "hint"), [("learning_rate", ""), ("chanels", "channels"), (7, ""), (None, "")]
)
def test_unknown_settings_are_refused(name: Any, hint: str) -> None:
    with pytest.raises(UsageError, match=f"{name}.*{hint}"):
        parse_settings({name: 1})


def test_yaml_brings_every_setting_back(tmp_path: Path) -> None:
    assert set(OTHER) == set(NAMES)
    for config in (Config(), Config(**OTHER)):
        text = config.to_yaml()
        assert list(yaml.safe_load(text)) == NAMES
        assert Config(**parse_settings(yaml.safe_load(text))) == config
        path = tmp_path / "settings.yaml"
        path.write_text(text, encoding="utf-8")
        assert Config(**read_preset(str(path))) == config
    assert all(value != asdict(Config())[name] for name, value in OTHER.items())


def test_a_bare_on_and_off_are_words_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text("history: off\nlr: 1e-4\nfd_final: yes\n")
    assert read_preset(str(path)) == {"history": "off", "lr": 1e-4, "fd_final": True}
    path.write_text("# nothing but a remark\n")
    assert read_preset(str(path)) == {}


@pytest.mark.parametrize("name", presets())
def test_presets_load(name: str) -> None:
    settings = read_preset(name)
    assert settings
    config = resolve(1000, preset=name)
    assert {key: getattr(config, key) for key in settings} == settings


#: What the paper's authors' released code does where the paper leaves it open.
AUTHORS = {
    "history": "off", "aggregation": "sum", "strategy": "uniform", "completion": "against",
    "regime": "rolling", "activation": "none", "head": "linear", "edge_bias": True,
    "gate_mean": "all", "gate_norm": False, "gate_at": "average", "random_gates": "uniform",
    "message": "linear", "fd_start": "normal", "fd_directions": "both", "fd_final": True,
    "fd_negatives": 1, "fd_false_negatives": True, "fd_every": "epoch", "fd_training": True,
    "encoder": "resnet", "encoder_depth": 4, "encoder_dropout": 0.2, "text": "glove",
    "ages_from": "seed", "seed_context": False, "optimizer": "adam", "weight_decay": 1e-6,
    "clip": 0.0, "average": 0.0, "schedule": "constant", "steps_per_epoch": 0, "alpha": 0.99,
    "beta": 1e-6, "gamma": 0.1, "channels": 128,
}  # fmt: skip


@pytest.mark.parametrize("task", ["driver-dnf", "driver-top3", "driver-position"])
def test_the_paper_as_its_authors_ran_it(task: str) -> None:
    settings = read_preset(f"paper/rel-f1-{task}")
    assert {name: settings[name] for name in AUTHORS} == AUTHORS
    assert settings["hops"] == max(3, 2 * settings["layers"])
    assert settings["patience"] == settings["epochs"]


def test_there_are_presets() -> None:
    assert "paper/rel-f1-driver-dnf" in presets()
    assert presets() == sorted(presets())


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("paper/rel-f1-driver-dfn", "", "no preset.*driver-dnf"),
        ("none.yaml", "", "none.yaml cannot be read"),
        ("a.yaml", "lr: [", "is not YAML"),
        ("a.yaml", "- lr\n", "must hold settings"),
        ("a.yaml", "lrr: 1", "lrr"),
        ("a.yaml", "lr: x", "lr must be a number"),
        ("a.yaml", b"\xff\xfe", "a.yaml"),
    ],
)
def test_wrong_presets_are_refused(
    name: str, text: str | bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text:
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=words):
        read_preset(name)


def test_default_then_preset_then_settings(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("lr: 0.5\nchannels: 16\nbatch_size: 7\n")
    plain = resolve(1000)
    assert plain == Config(**default_settings(1000))
    assert plain.channels == SIZES["medium"]
    some = resolve(1000, size="small", preset=str(path))
    assert (some.lr, some.channels, some.batch_size) == (0.5, 16, 7)
    both = resolve(1000, size="small", preset=str(path), settings={"lr": "0.25", "epochs": 3})
    assert (both.lr, both.channels, both.batch_size, both.epochs) == (0.25, 16, 7, 3)
    changed = {"lr", "channels", "batch_size", "epochs"}
    for name in set(NAMES) - changed:
        assert getattr(both, name) == getattr(plain, name)


def test_settings_follow_from_the_size_of_the_data() -> None:
    sizes = [default_settings(seeds)["batch_size"] for seeds in (0, 10, 3000, 30_000, 10**7)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 64
    assert sizes[-1] == 512
    for size, channels in SIZES.items():
        assert resolve(10, size=size).channels == channels
    with pytest.raises(UsageError, match="huge"):
        resolve(10, size="huge")


@pytest.mark.parametrize("model", ["sage", "relgnn", "lightgbm"])
def test_roles_are_for_the_model_that_has_them(model: str) -> None:
    with pytest.raises(UsageError, match=f"model {model} has no roles"):
        resolve(100, settings={"model": model, "roles": "edge"}, kind="binary_classification")
    assert resolve(100, settings={"model": model, "roles": "learned"}).model == model
    assert resolve(100, settings={"model": "auto", "roles": "edge"}).roles == "edge"
