"""What the functions of libraries read from files: whole datasets, samples, records."""

from __future__ import annotations

from enum import Enum
from typing import Final

from oomlint.finding import Resource
from oomlint.model import names


class KnownRead(Enum):
    """What one call brings into memory, in the words of a message."""

    ARRAY = "the array of a file"  # one call may hold a whole dataset
    ARCHIVE = "the arrays of an `.npz` archive"
    TORCH = "what `torch.load` returns"
    OBJECT = "the objects of a pickle file"
    TABLE = "a table"
    SAMPLE = "a decoded file"  # one call reads one sample
    NUMBERS = "the numbers of a text file"
    RECORDS = "the records of a file"
    TEXT = "the text of a file"


# What may be a dataset by itself, and what is one sample: that counts only where many are collected.
WHOLE: Final = frozenset({KnownRead.ARRAY, KnownRead.ARCHIVE, KnownRead.TORCH, KnownRead.OBJECT, KnownRead.TABLE})
ALL_AT_ONCE: Final = frozenset({"scipy.io.loadmat"})  # there is no way to read a part of such a file
# What makes an array of bytes that something else has read: of a line, a row of a table, an entry of a database.
DECODERS: Final = frozenset({"numpy.frombuffer", "numpy.fromstring", "cv2.imdecode"})
BY_NAME: Final = {
    name: kind
    for kind, listed in (
        (
            KnownRead.ARRAY,
            (
                "numpy.load numpy.fromfile scipy.io.loadmat hdf5storage.loadmat mat73.loadmat safetensors.torch.load_file deepdish.io.load hickle.load "
                "xarray.load_dataset xarray.load_dataarray xarray.open_dataset xarray.open_dataarray xarray.open_mfdataset xarray.open_zarr anndata.read_h5ad "
                "dgl.load_graphs dgl.data.load_graphs dgl.data.utils.load_graphs dgl.data.graph_serialize.load_graphs"
            ),
        ),
        (KnownRead.TORCH, "torch.load"),
        (
            KnownRead.OBJECT,
            (
                "pickle.load cPickle.load _pickle.load dill.load joblib.load cloudpickle.load pandas.read_pickle compress_pickle.load "
                "six.moves.cPickle.load mmengine.load mmcv.load"
            ),
        ),
        (KnownRead.TABLE, "pandas.read_parquet pandas.read_hdf pandas.read_feather polars.read_parquet polars.read_ipc pyarrow.parquet.read_table"),
        (
            KnownRead.SAMPLE,
            (
                "PIL.Image.open cv2.imread imageio.imread imageio.v2.imread imageio.v3.imread imageio.mimread skimage.io.imread matplotlib.pyplot.imread "
                "scipy.misc.imread "
                "matplotlib.image.imread tifffile.imread nibabel.load librosa.load librosa.core.load soundfile.read torchaudio.load scipy.io.wavfile.read "
                "torchvision.io.read_image torchvision.io.read_video torchvision.io.decode_image torchvision.datasets.folder.default_loader trimesh.load "
                "trimesh.load_mesh open3d.io.read_point_cloud open3d.io.read_triangle_mesh plyfile.PlyData.read SimpleITK.ReadImage pydicom.dcmread "
                "pydicom.read_file mne.io.read_raw_edf mne.io.read_raw_fif mne.io.read_raw_gdf mne.read_epochs "
                "torchvision.datasets.folder.pil_loader wfdb.rdsamp wfdb.rdrecord "
                "pyedflib.highlevel.read_edf mido.MidiFile pretty_midi.PrettyMIDI Bio.PDB.PDBParser ase.io.read rdkit.Chem.SDMolSupplier "
                "medpy.io.load nrrd.read kaldiio.load_mat obspy.read astropy.io.fits.getdata imageio.volread imageio.v2.volread itk.imread ants.image_read "
                "rasterio.open osgeo.gdal.Open decord.VideoReader pyedflib.EdfReader "
                "mmcv.imread laspy.read torch_geometric.io.read_off torch_geometric.io.read_ply pytorch3d.io.load_obj pytorch3d.io.load_objs_as_meshes"
            ),
        ),
        (KnownRead.SAMPLE, " ".join(sorted(DECODERS))),
        (KnownRead.NUMBERS, "numpy.loadtxt numpy.genfromtxt pandas.read_csv pandas.read_table pandas.read_excel pandas.read_json"),
        (KnownRead.RECORDS, "json.load orjson.loads ujson.load"),
    )
    for name in listed.split()
}
# What decodes one picture.
PICTURES: Final = frozenset(
    "PIL.Image.open cv2.imread imageio.imread imageio.v2.imread imageio.v3.imread skimage.io.imread matplotlib.pyplot.imread matplotlib.image.imread "
    "torchvision.io.read_image torchvision.io.decode_image torchvision.datasets.folder.default_loader torchvision.datasets.folder.pil_loader "
    "mmcv.imread".split()
)
GIVEN: Final = {
    KnownRead.TORCH: Resource.TENSORS,
    KnownRead.OBJECT: Resource.RECORDS,
    KnownRead.SAMPLE: Resource.IMAGES,
    KnownRead.RECORDS: Resource.RECORDS,
    KnownRead.TEXT: Resource.RECORDS,
}
# What only opens the file: its data are in memory where something on the way reads them (`Does.READS`).
LAZY: Final = frozenset(
    "xarray.open_dataset xarray.open_dataarray xarray.open_mfdataset xarray.open_zarr rasterio.open osgeo.gdal.Open "
    "decord.VideoReader pyedflib.EdfReader nibabel.load mne.io.read_raw_edf mne.io.read_raw_fif mne.io.read_raw_gdf".split()
)
# What makes such an object read all of its data, and stays in it: the argument that it is opened with, or a method of it (MNE).
PRELOADS: Final = "preload"
READS_IN_PLACE: Final = "load_data"
# Datasets that decode a file for each sample, which stands first in what they give.
SAMPLERS: Final = frozenset(
    f"{library}.datasets.{name}"
    for library, listed in (
        (
            "torchvision",
            (
                "ImageFolder DatasetFolder ImageNet CocoDetection CocoCaptions VOCDetection VOCSegmentation Cityscapes CelebA LSUN Flickr8k Flickr30k "
                "Caltech101 Caltech256 Food101 Flowers102 OxfordIIITPet StanfordCars SUN397 Places365 DTD FGVCAircraft Country211 GTSRB INaturalist PCAM "
                "LFWPeople SBDataset SBU WIDERFace EuroSAT Kinetics UCF101 HMDB51"
            ),
        ),
        ("torchaudio", "SPEECHCOMMANDS LIBRISPEECH LIBRITTS LJSPEECH VCTK_092 GTZAN COMMONVOICE TEDLIUM"),
    )
    for name in listed.split()
)
SAMPLING: Final = frozenset(name.rpartition(".")[2] for name in SAMPLERS)
LAST: Final = frozenset(name.rpartition(".")[2] for name in BY_NAME) | {"imread"}
PATH_ARGUMENTS: Final = frozenset("f file fname path filename filepath_or_buffer fp uri".split())  # by which functions that read are told where
TEXTS: Final = frozenset({"read", "readlines", "read_text", "read_bytes"})


def known_read(name: str) -> KnownRead | None:
    """What a function of a library reads from a file; ``None`` where it reads nothing that is known."""
    return BY_NAME.get(names.canonical(name)) or BY_NAME.get(name)


def opens_text(name: str) -> bool:
    """Whether a function opens a file of text or bytes, and not one of which a library gives bands, frames or tables."""
    return name.rpartition(".")[2] in {"open", "fdopen", "GzipFile"} and known_read(name) is None
