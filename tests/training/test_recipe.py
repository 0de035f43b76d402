import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from skypart.errors import SkyPartError
from skypart.training.recipe import Recipe, build_recipe, load_recipe
from tests.training.small_runs import small_recipe, write_recipe

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
NAMES = sorted(
    str(path.relative_to(RECIPES))
    for path in RECIPES.rglob("*.toml")
    if path.parent.name != "experiments" or path.stem.startswith("small")  # the others are plans
)


def test_the_default_recipe_has_every_key_with_its_default() -> None:
    content = tomllib.loads((RECIPES / "default.toml").read_text(encoding="utf-8"))
    expected = Recipe().to_dict()
    assert {section: set(values) for section, values in content.items()} == {
        section: set(values) for section, values in expected.items()
    }
    assert load_recipe(RECIPES / "default.toml") == Recipe()


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_loads_and_overrides_are_short(name: str) -> None:
    assert isinstance(load_recipe(RECIPES / name), Recipe)
    if name != "default.toml":
        lines = (RECIPES / name).read_text(encoding="utf-8").splitlines()
        ours = name.startswith("default-model/") or name == "world.toml"
        most = 60 if ours else 25
        assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= most


def test_stages_of_the_default_model_are_flat_and_numbered() -> None:
    stages = sorted((RECIPES / "default-model").glob("[0-9]*.toml"))
    assert [int(path.name[:2]) for path in stages] == list(range(1, 11))
    for path in stages:
        assert tomllib.loads(path.read_text(encoding="utf-8"))["extends"] == "common.toml"
        assert load_recipe(path).run.out == f"runs/default-model/{path.stem}"
    assert tomllib.loads((RECIPES / "default-model" / "common.toml").read_text())["extends"] == "../default.toml"


def test_recipes_follow_the_design() -> None:
    sues, university, dense = (load_recipe(RECIPES / f"{n}.toml") for n in ("sues200", "university1652", "denseuav"))
    assert vars(sues.head)["altitude_bins"] == (150.0, 200.0, 250.0, 300.0)
    assert (vars(university.head)["altitude_bins"], university.loss.alt) == ((), False)
    assert [recipe.augment.quarter_turns for recipe in (sues, university, dense)] == [False, False, True]
    for kind in ("sues200", "university1652", "denseuav"):
        weather = load_recipe(RECIPES / f"{kind}-weather.toml")
        assert weather.data.weather == "paper" and weather.data.kind == kind
        assert (weather.backbone.size, weather.optimiser.head_lr) == (392, 1e-4)
        assert weather.backbone.start == f"{load_recipe(RECIPES / f'{kind}.toml').run.out}/best.safetensors"


def test_extends_chains_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[run]\nseed = 1\nkeep = 5\n[batch]\ndrone = 7\n")
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n[run]\nseed = 2\n')
    (tmp_path / "c.toml").write_text('extends = "b.toml"\n[optimiser]\nclip = 3\n')
    recipe = load_recipe(tmp_path / "c.toml")
    assert (recipe.run.seed, recipe.run.keep, recipe.batch.drone, recipe.optimiser.clip) == (2, 5, 7, 3.0)


def test_extends_in_a_circle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    with pytest.raises(SkyPartError, match="circle"):
        load_recipe(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[optimiser]\nepoch = 3\n", ["optimiser.epoch", "did you mean optimiser.epochs"]),
        ("[optimizer]\nepochs = 3\n", ["optimizer", "did you mean optimiser"]),
        ('[head]\nkindd = "salad"\n', ["head.kindd", "did you mean head.kind?"]),
        ("[batch]\nlocations = 3.5\n", ["batch.locations", "3.5"]),
        ('[batch]\nlocations = "4"\n', ["batch.locations"]),
        ("[batch]\nlocations = true\n", ["batch.locations"]),
        ("[loss]\ncircle = 1\n", ["loss.circle"]),
        ('[data]\nweather = "foggy"\n', ["data.weather", "foggy"]),
        ("[run]\nout = 5\n", ["run.out"]),
        ("[loss]\ncircle_gamma = -1.0\n", ["circle_gamma"]),
        ("[batch]\nlocations = 1\n", ["batch.locations"]),
        ("[run]\nlog_every = 0\n", ["run.log_every"]),
        ("[run]\nvalidate_every = 0\n", ["run.validate_every"]),
        ("[data]\nworkers = -1\n", ["data.workers"]),
        ("[run]\nseed = -1\n", ["run.seed"]),
        ("[optimiser]\nstop_after = -3\n", ["optimiser.stop_after"]),
        ("[data]\nvalidation_drone = -1\n", ["data.validation_drone"]),
        ("[data]\nvalidation = 1.0\n", ["data.validation"]),
        ("[data]\nshares = [0.5, 0.5]\n", ["data.shares", "1 in all"]),
        ('[data]\nalso = ["more"]\nshares = [1.0, 0.0]\n', ["data.shares", "2 in all"]),
        ("[optimiser]\nclip = -1\n", ["optimiser.clip = -1", "at least 0"]),
        ("[optimiser]\nhead_lr = nan\n", ["optimiser.head_lr = nan"]),
        ("[optimiser]\nfloor = -5\n", ["optimiser.floor", "between 0 and 1"]),
        ("[distill]\nema = 2.0\n", ["distill.ema", "between 0 and 1"]),
        ("[distill]\npatches = -1\n", ["distill.patches"]),
        ("[distill]\nmar_ratio = 1.0\n", ["distill.mar_ratio = 1.0", "[0, 1)"]),
        ("[distill]\nmar_ratio = nan\n", ["distill.mar_ratio", "[0, 1)"]),
        ("[distill]\nmar_ratio = -0.1\n", ["distill.mar_ratio", "[0, 1)"]),
        ("[head]\naltitude_bins = [80.0, nan]\n", ["head.altitude_bins", "nan", "increasing"]),
        ("[head]\naltitude_bins = [80.0, inf]\n", ["head.altitude_bins", "increasing"]),
        ("[head]\naltitude_bins = [150.0, 80.0]\n", ["head.altitude_bins = [150.0, 80.0]", "increasing"]),
        ("[head]\naltitude_bins = [80, 80]\n", ["head.altitude_bins", "increasing"]),
        ("[head]\naltitude_bins = []\n", ["head.altitude_bins", "loss.alt=false"]),
        ("[augment]\ncrop = -0.5\n", ["augment.crop"]),
        ("[head]\ngraph_heads = 0\n", ["head.graph_heads", "at least 1"]),
        ("[head]\ngraph_heads = 5\n", ["head.graph_heads=5 must divide"]),
        ("[head]\npart_dim = -3\n", ["head.part_dim"]),
        ("epochs = 3\n", ["epochs", "section"]),
        ("[batch\n", ["TOML"]),
        ('extends = "missing.toml"\n', ["missing.toml", "no such recipe"]),
    ],
)
def test_an_invalid_recipe_is_an_error_that_names_the_key(tmp_path: Path, content: str, words: list[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(content)
    with pytest.raises(SkyPartError) as error:
        load_recipe(file)
    for word in words:
        assert word in str(error.value)


def test_bins_may_be_empty_without_the_altitude_loss(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    for bins in ("[]", "[150.0]"):
        file.write_text(f"[head]\naltitude_bins = {bins}\n[loss]\nalt = false\n[distill]\nmar_ratio = 0.0\n")
        assert list(vars(load_recipe(file).head)["altitude_bins"]) == tomllib.loads(f"b = {bins}")["b"]


def test_a_folder_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="cannot be read"):
        load_recipe(tmp_path)
    with pytest.raises(SkyPartError, match="no such recipe"):
        load_recipe(tmp_path / "none.toml")


def test_overrides_accept_dotted_keys_short_keys_and_strings() -> None:
    recipe = load_recipe(
        RECIPES / "world.toml",
        [
            "optimiser.epochs=7",
            "head_lr=1",
            "data.root=/some where/SUES-200",
            'run.out="runs/5"',
            "weather=weatherprompt",
            "distill.teacher=",
            "head.altitude_bins=[80, 90.5]",
            "gradient_checkpointing=true",
            "seed = 9",
        ],
    )
    assert (recipe.optimiser.epochs, recipe.optimiser.head_lr) == (7, 1.0)
    assert (recipe.data.root, recipe.run.out, recipe.data.weather) == (
        "/some where/SUES-200",
        "runs/5",
        "weatherprompt",
    )
    assert (recipe.distill.teacher, vars(recipe.head)["altitude_bins"]) == ("", (80.0, 90.5))
    assert recipe.backbone.gradient_checkpointing is True and recipe.run.seed == 9
    assert recipe.batch == load_recipe(RECIPES / "world.toml").batch


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("teacher=x", ["loss.teacher", "distill.teacher"]),
        ("epoch=3", ["epochs"]),
        ("optimiser.epoch=3", ["optimiser.epochs"]),
        ("optimizer.epochs=3", ["did you mean optimiser"]),
        ("epochs", ["key=value"]),
        ("epochs=many", ["optimiser.epochs", "many"]),
        ("zzzz=1", ["zzzz"]),
    ],
)
def test_an_invalid_override_suggests_the_right_key(override: str, words: list[str]) -> None:
    with pytest.raises(SkyPartError) as error:
        load_recipe(RECIPES / "world.toml", [override])
    for word in words:
        assert word in str(error.value)


def test_a_recipe_round_trips_through_a_dict_and_a_file(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, tmp_path / "out")
    recipe = replace(recipe, loss=replace(recipe.loss, uapa_direction="forward"))
    assert build_recipe(recipe.to_dict(), "dictionary") == recipe
    assert load_recipe(write_recipe(tmp_path / "r.toml", recipe)) == recipe
