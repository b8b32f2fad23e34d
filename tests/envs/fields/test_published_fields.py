"""Published fields, read from files written in their layouts."""

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from sprii_envs import dependencies
from sprii_envs.banks import StoreError
from sprii_envs.fields import BurgersProtocol, FHNProtocol, build_fields

h5py = pytest.importorskip("h5py")
scipy_io = pytest.importorskip("scipy.io")

from sprii_envs.fields.published import PublishedError, import_burgers, import_fhn  # noqa: E402

BURGERS = BurgersProtocol(
    cells=40, points=5, frames=3, train=2, validation=1, id_test=1, viscosities=(1e-4, 1e-3), outer=(3e-3,)
)
FHN = FHNProtocol(
    side=8,
    frames=3,
    systems=((0.03, 0.10),),
    inside=(),
    outside=((0.05, 0.30),),
    train_cases=(50, 51),
    test_cases=(15,),
)


def field(nu, case, times=3, points=5):
    """What differs at every place: nu, then case, time and place."""
    return 1e5 * nu + case + np.linspace(0, 1, times)[:, None] / 10 + np.linspace(0, 1, points) / 100


def write(file, nu, cases=4, attribute=True, **shape):
    file.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(file, "w") as data:
        data["U_All"] = np.stack([field(nu, case, **shape) for case in range(cases)], axis=-1).astype(np.float32)
        if attribute:
            data.attrs["nu"] = nu


@pytest.fixture
def archive(tmp_path):
    root = tmp_path / "archive"
    write(root / "train" / "viscous_nu_1e-04.h5", 1e-4)
    write(root / "train" / "viscous_nu_0.0010.h5", np.float32(1e-3), times=5, points=9)
    write(root / "train_add" / "viscous_nu_0.0010.h5", 1e-3, cases=2)
    write(root / "truth" / "viscous_nu_0.0010.h5", 1e-3)
    write(root / "truth" / "viscous_nu_0.0030.h5", 3e-3, cases=3, attribute=False)
    write(root / "truth" / "inviscid.h5", 0.0, cases=2)
    return root


def test_burgers_is_read_into_the_layout_of_generated_banks(archive, tmp_path):
    seen = []
    bank = import_burgers(archive, tmp_path / "bank", layout=BURGERS, progress=lambda *told: seen.append(told))
    table = bank.table
    assert seen == [(done, 13) for done in range(14)]
    assert bank.splits == ("train", "validation", "id_test", "viscous_ood", "inviscid_ood")
    assert [len(bank.split(s)) for s in bank.splits] == [4, 2, 2, 3, 2]
    assert set(table["viscosity"]) == {0.0, 1e-4, 1e-3, 3e-3}
    for row in range(len(table)):
        found = bank.windows("field", [table["episode"][row]], [0], 3)[0]
        np.testing.assert_allclose(found, field(table["viscosity"][row], table["case"][row]), rtol=1e-5)
    built = build_fields(replace(BURGERS, viscous_ood=3, inviscid_ood=2), tmp_path / "built")
    for name in ("system", "case", "split", "viscosity", "length"):
        np.testing.assert_array_equal(built.table[name], table[name])
    assert bank.columns == built.columns
    assert bank.origin["kind"] == "published"
    assert bank.origin["left_out"] == ["viscous_nu_0.0010.h5"]
    name = "train/viscous_nu_1e-04.h5"
    assert bank.origin["files"][name] == sha256((archive / name).read_bytes()).hexdigest()
    assert sorted(bank.origin["files"]) == [
        "train/viscous_nu_0.0010.h5", name, "truth/inviscid.h5", "truth/viscous_nu_0.0030.h5",
    ]  # fmt: skip


def test_additional_cases_are_for_training_and_numbered_behind(archive, tmp_path):
    bank = import_burgers(archive, tmp_path / "bank", layout=BURGERS, additional=True)
    train = bank.split("train")
    assert train["case"][train["viscosity"] == 1e-3].tolist() == [0, 1, 4, 5]
    added = bank.windows("field", train["episode"][train["case"] == 5], [0], 3)[0]
    np.testing.assert_allclose(added, field(1e-3, 1), rtol=1e-5)


def test_an_interrupted_import_goes_on_and_a_finished_one_is_opened(archive, tmp_path):
    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_burgers(archive, tmp_path / "bank", layout=BURGERS, progress=stop)
    seen = []
    bank = import_burgers(archive, tmp_path / "bank", layout=BURGERS, progress=lambda *told: seen.append(told))
    assert seen[0] == (5, 13)
    assert bank.fingerprint == import_burgers(archive, tmp_path / "whole", layout=BURGERS).fingerprint
    assert import_burgers(archive, tmp_path / "bank", layout=BURGERS).fingerprint == bank.fingerprint
    with pytest.raises(StoreError, match="holds another bank"):  # the files are the same
        import_burgers(archive, tmp_path / "bank", layout=replace(BURGERS, frames=2))
    write(archive / "truth" / "inviscid.h5", 0.0, cases=1)
    with pytest.raises(StoreError, match="holds another bank"):
        import_burgers(archive, tmp_path / "bank", layout=BURGERS)


def nan(root):
    with h5py.File(root / "truth" / "inviscid.h5", "r+") as data:
        data["U_All"][1, 2, 1] = np.nan


def cut(root):
    file = root / "train" / "viscous_nu_1e-04.h5"
    file.write_bytes(file.read_bytes()[:500])


def renamed(root):
    with h5py.File(root / "train" / "viscous_nu_1e-04.h5", "r+") as data:
        data.move("U_All", "u")


def nu_text(root):
    with h5py.File(root / "train" / "viscous_nu_1e-04.h5", "r+") as data:
        data.attrs["nu"] = "small"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda root: (root / "train" / "viscous_nu_1e-04.h5").unlink(), "train lacks the viscosities 0.0001"),
        (lambda root: write(root / "train" / "viscous_nu_0.0500.h5", 0.05), "0.05 is none of training"),
        (lambda root: write(root / "train" / "viscous_nu_0.0001.h5", 1e-4), "are of one viscosity, 0.0001"),
        (lambda root: write(root / "train" / "viscous_nu_0.0010.h5", 2e-3), "nu is 0.002, which contradicts its name"),
        (lambda root: write(root / "truth" / "inviscid.h5", 1e-5), "nu is 1e-05, which contradicts its name"),
        (lambda root: write(root / "train" / "viscous_nu_0.0010.h5", 1e-3, cases=3), "holds 3 cases, expected 4"),
        (lambda root: write(root / "truth" / "inviscid.h5", 0.0, times=4), "4 entries in time, expected 3"),
        (lambda root: write(root / "truth" / "inviscid.h5", 0.0, points=3), "3 entries in space, expected 5"),
        (lambda root: write(root / "truth" / "burgers_1.h5", 0.0), "burgers_1.h5 is named otherwise than"),
        (lambda root: (root / "truth").rename(root / "truths"), "truth is missing"),
        (nan, "case 1 of U_All holds NaN or infinity"),
        (cut, "viscous_nu_1e-04.h5 cannot be read as HDF5"),
        (renamed, "holds no data set 'U_All', but: u"),
        (nu_text, "its attribute nu is 'small', expected a number"),
    ],
)
def test_damaged_burgers_is_told_of_and_nothing_left(archive, tmp_path, damage, said):
    damage(archive)
    with pytest.raises(PublishedError, match=said):
        import_burgers(archive, tmp_path / "bank", layout=BURGERS)
    assert {p.name for p in tmp_path.iterdir()} == {"archive"}


def test_what_to_install_is_said_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(dependencies, "is_absent", lambda package: package in ("h5py", "scipy"))
    for read, package in ((import_burgers, "h5py"), (import_fhn, "scipy")):
        with pytest.raises(dependencies.PackageImportError, match=rf"needs {package}: pip install 'sprii\[fields\]'"):
            read(tmp_path / "nowhere", tmp_path / "bank")


@pytest.fixture
def mats(tmp_path):
    """The trajectories of FHN in MAT files, one pair below a folder of its own, one as MATLAB 7.3 has it."""
    root, rng = tmp_path / "mats", np.random.default_rng(0)
    (root / "deeper").mkdir(parents=True)
    for each in FHN.plan():
        for name in "UV":
            data = rng.standard_normal((3, 8, 8)).astype(np.float32)
            folder = root / "deeper" if each["case"] == 51 else root
            file = folder / f"{name}_{each['k']:.2f}_{each['beta']:.2f}_{each['case']}.mat"
            if each["case"] == 15:
                with h5py.File(file, "w", userblock_size=512) as made:
                    made[f"{name}_record"] = data.T
                with open(file, "r+b") as made:
                    made.write(b"MATLAB 7.3 MAT-file")
            else:
                scipy_io.savemat(file, {f"{name}_record": data})
            np.save(tmp_path / f"{file.name}.npy", data)
    return root


def test_fhn_is_read_into_the_layout_of_generated_banks(mats, tmp_path):
    scipy_io.savemat(mats / "U_0.03_0.10_77.mat", {"U_record": np.zeros(3)})  # not asked for
    bank = import_fhn(mats, tmp_path / "bank", layout=FHN)
    table = bank.table
    built = build_fields(replace(FHN, step=0.5), tmp_path / "built")
    for name in ("system", "case", "split", "k", "beta", "length"):
        np.testing.assert_array_equal(built.table[name], table[name])
    for row in range(len(table)):
        found = bank.windows("field", [table["episode"][row]], [0], 3)[0]
        for i, name in enumerate("UV"):
            file = f"{name}_{table['k'][row]:.2f}_{table['beta'][row]:.2f}_{table['case'][row]}.mat"
            np.testing.assert_array_equal(found[:, i], np.load(tmp_path / f"{file}.npy"))
    assert len(bank.origin["files"]) == 2 * len(table)
    assert "deeper/V_0.03_0.10_51.mat" in bank.origin["files"]
    with pytest.raises(StoreError, match="holds another bank"):  # of the same files, in other splits
        import_fhn(mats, tmp_path / "bank", layout=replace(FHN, train_cases=(50, 15), test_cases=(51,), outside=()))


def mat(name, array, key="U_record"):
    return lambda root: scipy_io.savemat(root / name, {key: array})


NAN = np.where(np.arange(192).reshape(3, 8, 8) == 7, np.nan, 0.0)
FIRST = "U_0.05_0.30_5.mat"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda root: (root / FIRST).unlink(), "lacks 1 of 12 files: U_0.05_0.30_5.mat"),
        (mat(FIRST, np.zeros((3, 8, 7))), r"U_record is float64 of shape \(3, 8, 7\), expected floats \(3, 8, 8\)"),
        (mat(FIRST, NAN), "U_record holds NaN or infinity"),
        (mat(FIRST, np.zeros((3, 8, 8)), "V_record"), "holds no array 'U_record'"),
        (mat("U_0.3_0.10_5.mat", np.zeros(3)), "U_0.3_0.10_5.mat is named otherwise than"),
        (mat(f"deeper/{FIRST}", np.zeros((3, 8, 8))), "are of one trajectory"),
        (lambda root: (root / FIRST).write_bytes((root / FIRST).read_bytes()[:300]), "cannot be read as MAT"),
        (lambda root: (root / FIRST).write_bytes(b"MATLAB 7.3 and nothing"), "cannot be read as HDF5"),
        (lambda root: root.rename(root.with_name("archive")), "mats is no folder"),
    ],
)
def test_damaged_fhn_is_told_of_and_nothing_left(mats, tmp_path, damage, said):
    damage(mats)
    with pytest.raises(PublishedError, match=said):
        import_fhn(mats, tmp_path / "bank", layout=FHN)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("bank")]
