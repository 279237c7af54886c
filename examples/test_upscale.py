#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests the example upscale: test_upscale.py PROGRAM [FOLDER].

Small models made here do most of it; those with waifu2x's own need FOLDER, which fetch_model fills, and are
skipped where that fails.
"""

import base64
import pathlib
import random
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = None
MODEL_FOLDER = None

# 16x12 pixels, gradients.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAYEBQYFBAYGBQYHBwYIChAKCgkJChQODwwQFxQYGBcUFhYaHSUfGhsjHBYWICwgIyYnKSop"
    "GR8tMC0oMCUoKSj/2wBDAQcHBwoIChMKChMoGhYaKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgo"
    "KCj/wAARCAAMABADASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAABgf/xAAcEAACAAcAAAAAAAAAAAAAAAAABQQGISIjMqH/xAAV"
    "AQEBAAAAAAAAAAAAAAAAAAABBP/EABoRAAICAwAAAAAAAAAAAAAAAAADBAYFISL/2gAMAwEAAhEDEQA/AJqplTXHwZqZU1x8G6ldDUsG"
    "aldDUsCdm2bJ6rYm8n//2Q==")


# ---- Pictures ---------------------------------------------------------------------------------------

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, channels, pixels):
    header = struct.pack(">IIBBBBB", width, height, 8, (0, 0, 4, 2, 6)[channels], 0, 0, 0)
    row = width * channels
    lines = b"".join(b"\0" + pixels[y * row:(y + 1) * row] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def read_png(path):
    """Width, height, channels and pixels of an 8-bit PNG."""
    data = path.read_bytes()
    width, height, bits, colour = struct.unpack(">IIBB", data[16:26])
    assert bits == 8
    channels = {0: 1, 4: 2, 2: 3, 6: 4}[colour]
    packed, at = b"", 8
    while at < len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += length + 12
    raw, row = zlib.decompress(packed), width * channels
    previous, pixels = bytearray(row), bytearray()
    for y in range(height):
        kind, line = raw[y * (row + 1)], bytearray(raw[y * (row + 1) + 1:(y + 1) * (row + 1)])
        for i in range(row):
            left = line[i - channels] if i >= channels else 0
            up, corner = previous[i], previous[i - channels] if i >= channels else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda value: abs(guess - value))
            line[i] = (line[i] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
        pixels += line
        previous = line
    return width, height, channels, bytes(pixels)


def bmp(width, height, pixels):
    blue_first = b"".join(pixels[i:i + 3][::-1] for i in range(0, len(pixels), 3))
    lines = b"".join(blue_first[3 * width * y:3 * width * (y + 1)].ljust((3 * width + 3) // 4 * 4, b"\0")
                     for y in reversed(range(height)))
    return (b"BM" + struct.pack("<IHHI", 54 + len(lines), 0, 0, 54) +
            struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(lines), 0, 0, 0, 0) + lines)


def noise(count, seed=1):
    return random.Random(seed).randbytes(count)


def doubled(width, height, channels, pixels):
    """Every pixel as 2x2."""
    result = b""
    for y in range(height):
        row = b"".join(pixels[(y * width + x) * channels:(y * width + x + 1) * channels] * 2 for x in range(width))
        result += row * 2
    return result


# ---- Models -----------------------------------------------------------------------------------------

PARAM = """7767517
3 3
Input        input  0 1 in 0=8 1=8 2=3
Convolution  first  1 1 in middle 0={k} 1=3 5=1 6={first} 9=2 -23310=1,0.1
Deconvolution second 1 1 middle out 0=3 1=4 3=2 4=3 5=1 6={second}
"""


def write_model(folder, k, first, second, bias=0.0):
    """Two layers; weights are functions of (output channel, input channel, row, column)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scale2.0x_model.param").write_text(PARAM.format(k=k, first=k * 27, second=k * 48))
    content = b""
    for outputs, inputs, size, weight in ((k, 3, 3, first), (3, k, 4, second)):
        halves = [weight(o, i, r, s) for o in range(outputs) for i in range(inputs)
                  for r in range(size) for s in range(size)]
        packed = struct.pack(f"<{len(halves)}e", *halves)
        content += struct.pack("<I", 0x01306B47) + packed.ljust((len(packed) + 3) // 4 * 4, b"\0")
        content += struct.pack(f"<{outputs}f", *[bias] * outputs)
    (folder / "scale2.0x_model.bin").write_bytes(content)
    return folder


def copying_model(folder):
    """Its result is exactly every pixel as 2x2: taps 1 and 2 of the last layer fall on one pixel each."""
    return write_model(folder, 3, lambda o, i, r, s: float(o == i and r == 1 and s == 1),
                       lambda o, i, r, s: float(o == i and r in (1, 2) and s in (1, 2)))


def random_model(folder):
    generator = random.Random(7)
    return write_model(folder, 5, lambda *_: generator.uniform(-0.3, 0.4), lambda *_: generator.uniform(-0.2, 0.3), 0.1)


# ---- Tests ------------------------------------------------------------------------------------------

class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.photo = self.folder / "photo.png"
        self.output = self.folder / "output.png"

    def run_program(self, *arguments, model=None, photo=None, output=None, **options):
        command = [PROGRAM, photo or self.photo, "--model", model or self.folder / "model",
                   "--output", output or self.output, *arguments]
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)

    def upscale(self, *arguments, **options):
        done = self.run_program(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_png(self.output)

    def same(self, result, expected, within=0):
        """Compares pictures; unittest's own list of the differences would take minutes."""
        self.assertEqual(result[:3], expected[:3])
        if result[3] != expected[3]:
            channels, width = result[2], result[0]
            wrong = [i for i, pair in enumerate(zip(result[3], expected[3])) if abs(pair[0] - pair[1]) > within]
            if not wrong:
                return
            at = wrong[0] // channels
            self.fail(f"{len(wrong)} bytes of {len(result[3])} differ; the first in row {at // width}, column "
                      f"{at % width}: {result[3][wrong[0]]}, must be {expected[3][wrong[0]]}")

    def refuse(self, what, *arguments, **options):
        before = sorted(self.folder.rglob("*"))
        done = self.run_program(*arguments, **options)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, what)
        self.assertTrue(done.stderr.startswith("upscale: ") and done.stderr.count("\n") == 1, done.stderr)
        self.assertEqual(before, sorted(self.folder.rglob("*")), "files left")


class Pictures(Case):
    def test_every_kind_and_size(self):
        copying_model(self.folder / "model")
        for width, height, tile in ((1, 1, 1), (1, 1, 256), (3, 5, 2), (3, 5, 256), (17, 300, 64), (300, 17, 5)):
            for channels in (1, 2, 3, 4):
                for layout in ("nchw", "nhwc"):
                    with self.subTest(width=width, height=height, tile=tile, channels=channels, layout=layout):
                        pixels = bytearray(noise(width * height * channels))
                        if channels in (2, 4):  # colours behind alpha 0 are not kept
                            pixels[channels - 1::channels] = bytes(a | 1 for a in pixels[channels - 1::channels])
                        self.photo.write_bytes(png(width, height, channels, pixels))
                        result = self.upscale("--tile", tile, "--layout", layout, "--threads", 1 + channels % 2)
                        self.same(result, (2 * width, 2 * height, channels,
                                           doubled(width, height, channels, bytes(pixels))))

    def test_other_formats(self):
        copying_model(self.folder / "model")
        pixels = noise(7 * 5 * 3)
        (self.folder / "photo.bmp").write_bytes(bmp(7, 5, pixels))
        self.same(self.upscale(photo=self.folder / "photo.bmp"), (14, 10, 3, doubled(7, 5, 3, pixels)))
        (self.folder / "photo.jpg").write_bytes(JPEG)
        width, height, channels, pixels = self.upscale(photo=self.folder / "photo.jpg")
        self.assertEqual((width, height, channels), (32, 24, 3))
        red, blue = pixels[3 * (16 * 32 + 28)], pixels[3 * (16 * 32 + 28) + 2]
        self.assertAlmostEqual(red, 14 * 16, delta=40)
        self.assertAlmostEqual(blue, 128, delta=40)

    def test_invisible_colours_do_not_bleed(self):
        """White next to invisible black: no grey at the edge, whatever the network mixes."""
        write_model(self.folder / "model", 3, lambda o, i, r, s: float(o == i) / 9,
                    lambda o, i, r, s: float(o == i and r in (1, 2) and s in (1, 2)))
        row = b"\xff\xff\xff\xff" * 8 + b"\0\0\0\0" * 8
        self.photo.write_bytes(png(16, 8, 4, row * 8))
        _, _, _, pixels = self.upscale()
        edge = [pixels[4 * (8 * 32 + x):][:4] for x in (14, 15)]
        self.assertEqual([pixel[:3] for pixel in edge], [b"\xff\xff\xff"] * 2)
        self.assertLess(edge[1][3], 255)

    def test_tiles_do_not_show(self):
        random_model(self.folder / "model")
        self.photo.write_bytes(png(61, 43, 3, noise(61 * 43 * 3)))
        whole = self.upscale("--tile", 256)
        self.assertGreater(len(set(whole[3])), 100)
        for tile in (1, 7, 20, 60):
            for threads in (1, 3):
                self.same(self.upscale("--tile", tile, "--threads", threads), whole)

    def test_output_is_replaced_and_named_after_the_photo(self):
        copying_model(self.folder / "model")
        self.photo.write_bytes(png(2, 2, 1, b"\0\1\2\3"))
        self.output.write_bytes(b"old")
        self.assertEqual(self.upscale()[:3], (4, 4, 1))
        done = subprocess.run([PROGRAM, "photo.png", "--model", "model"], cwd=self.folder, capture_output=True)
        self.assertEqual(done.returncode, 0)
        self.same(read_png(self.folder / "photo_2x.png"), read_png(self.output))

    def test_compare(self):
        random_model(self.folder / "model")
        self.photo.write_bytes(png(30, 20, 3, noise(30 * 20 * 3)))
        done = self.run_program("--compare", "--tile", 16)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\nncnn: ", done.stdout)
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("first", "second"))]
        self.assertEqual(len(rows), 2)
        for row in rows:  # float32 rounds
            self.assertLess(float(row[-2]), 1e-6)
            self.assertLess(float(row[-1]), 1e-5)

    def test_a_gpu_makes_the_same_picture(self):
        """Or says in a sentence why there is none."""
        random_model(self.folder / "model")
        self.photo.write_bytes(png(30, 21, 4, noise(30 * 21 * 4)))
        done = self.run_program("--device", "cuda", "--compare", "--tile", 16)
        if done.returncode != 0:
            return self.refuse("^upscale: --device cuda: .*(libcuda.so.1|CUDA|no CUDA kernels|cuInit|capability)", "--device", "cuda")
        there = read_png(self.output)
        self.same(there, self.upscale("--tile", 16), within=1)
        self.assertRegex(done.stdout, "(?m)^first .*_cuda|^first .*_sm")
        for row in [line.split() for line in done.stdout.splitlines() if line.startswith(("first", "second"))]:
            self.assertLess(float(row[-2]), 1e-6)


class BadInputs(Case):
    def setUp(self):
        super().setUp()
        copying_model(self.folder / "model")
        self.good = png(9, 9, 3, noise(9 * 9 * 3))
        self.photo.write_bytes(self.good)

    def test_photo(self):
        pixels = noise(9 * 9 * 3)
        bomb = png(2, 2, 1, b"\0" * 4)
        for what, content in (
                ("is empty", b""),
                ("is not a PNG, JPEG or BMP", b"A letter, not a picture.\n" * 20),
                ("is not a PNG, JPEG or BMP", bytes(1000)),
                ("is damaged, or its size", self.good[:12]),
                ("is damaged or cut short", self.good[:100]),
                ("is damaged or cut short", self.good[:-12]),
                ("is damaged or cut short", JPEG[:-40]),
                ("is damaged or cut short", bmp(9, 9, pixels)[:-30]),
                ("has 7000x5000 pixels, must have at most", bomb[:16] + struct.pack(">II", 7000, 5000) + bomb[24:]),
                ("is damaged, or its size", bomb[:16] + struct.pack(">II", 2000000, 2000000) + bomb[24:])):
            with self.subTest(what=what, bytes=len(content)):
                self.photo.write_bytes(content)
                self.refuse(what)
        self.photo.unlink()
        self.refuse("cannot open .*: No such file")
        self.refuse("is a folder", photo=self.folder)
        with open(self.photo, "wb") as file:
            file.truncate(300 << 20)
        self.refuse("has more than 256 MB")

    def test_output(self):
        self.refuse("cannot write .*: No such file", output=self.folder / "nowhere" / "output.png")
        self.refuse("must end with .png", output=self.folder / "output.jpg")
        self.refuse("is the input itself", output=self.photo)
        self.refuse("is not a file", output=self.make_folder("folder.png"))
        self.assertEqual(self.photo.read_bytes(), self.good)

    def make_folder(self, name):
        (self.folder / name).mkdir()
        return self.folder / name

    def test_full_disk(self):
        self.photo.write_bytes(png(99, 99, 3, noise(99 * 99 * 3)))
        self.output.write_bytes(b"old")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = self.run_program(preexec_fn=limit)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.splitlines()[-1], "upscale: cannot write .*: File too large")
        self.assertEqual(self.output.read_bytes(), b"old")
        self.assertEqual(list(self.folder.glob("*.part*")), [])

    def test_param(self):
        path = self.folder / "model" / "scale2.0x_model.param"
        text = path.read_text()
        for what, change in (
                ("line 1: an ncnn model begins", lambda t: t[1:]),
                ("line 1: an ncnn model begins", lambda t: ""),
                ("line 2: must hold the counts", lambda t: t.replace("3 3\n", "3\n")),
                ("line 2: must hold the counts", lambda t: t.replace("3 3\n", "3 4\n")),
                ("line 2: must hold the counts", lambda t: t.replace("3 3\n", "3000000000 3000000000\n")),
                ("ends at line 5", lambda t: "\n".join(t.splitlines()[:4])),
                ("line 4: a layer is", lambda t: t.replace("1 1 in", "1")),
                ("line 4: layer first reads inn, must read in", lambda t: t.replace("1 1 in ", "1 1 inn ")),
                ("line 4: .* 2 inputs and 1 outputs", lambda t: t.replace("first  1 1 in", "first 2 1 in in")),
                ("line 4: layer type Eltwise", lambda t: t.replace("Convolution ", "Eltwise ")),
                ("line 3: the first layer is", lambda t: t.replace("Input        input  0 1", "Split input 1 1 x")),
                ("line 3: layer input has 0 inputs", lambda t: t.replace("Input  ", "Split  ")),
                ("parameter 2 is 1, must be 3", lambda t: t.replace("2=3", "2=1")),
                ("parameter 0 is missing, must be 1 to 4096", lambda t: t.replace("0=3 1=3", "1=3")),
                ("parameter 0 is 99999, must be", lambda t: t.replace("0=3 1=3", "0=99999 1=3")),
                ("parameter 0 is '3x', must be a number", lambda t: t.replace("0=3 1=3", "0=3x 1=3")),
                ("parameter 0 is nan, must be", lambda t: t.replace("0=3 1=3", "0=nan 1=3")),
                ("parameter 6 is 81.5, must be 81", lambda t: t.replace("6=81", "6=81.5")),
                ("parameter 6 is 82, must be 81", lambda t: t.replace("6=81", "6=82")),
                ("parameter 3 is 1, must be 2", lambda t: t.replace("3=2", "3=1")),
                ("parameter 4 is 1, must be 3", lambda t: t.replace("4=3", "4=1")),
                ("parameter 77 is not one", lambda t: t.replace("9=2", "9=2 77=1")),
                ("'9' is not a parameter", lambda t: t.replace("9=2", "9")),
                ("must hold the one slope", lambda t: t.replace("-23310=1,0.1", "-23310=2,0.1,0.2")),
                ("the last layer, and no other", lambda t: t.replace("Deconvolution", "Convolution").replace(
                    "3=2 4=3", "3=1")),
                ("filters of these sizes cannot double", lambda t: t.replace("1=4", "1=3").replace("4=3", "4=2").replace(
                    "6=144", "6=81"))):
            with self.subTest(what=what):
                path.write_text(change(text))
                self.refuse(what)
        path.unlink()
        self.refuse("cannot read the model .*param: No such file")
        self.refuse("cannot read the model", model=self.folder / "nowhere")

    def test_weights(self):
        path = self.folder / "model" / "scale2.0x_model.bin"
        data = path.read_bytes()
        second = 4 + 164 + 12  # where the second layer's tag is
        for what, content in (
                ("has 0 bytes, must have", b""),
                (f"has {len(data) - 1} bytes, must have {len(data)}", data[:-1]),
                (f"has {len(data) + 1} bytes, must have {len(data)}", data + b"\0"),
                ("byte 0: layer first must begin with the tag", b"\0" + data[1:]),
                (f"byte {second}: layer second must begin with the tag", data[:second] + b"x" + data[second + 1:]),
                ("layer first has weights that are no numbers", data[:6] + b"\x01\x7c" + data[8:]),
                ("layer second has weights that are no numbers", data[:-4] + b"\x00\x00\xc0\x7f")):
            with self.subTest(what=what):
                path.write_bytes(content)
                self.refuse(what)
        path.unlink()
        self.refuse("cannot read the model .*bin: No such file")

    def test_arguments(self):
        for arguments in (["--tile", "0"], ["--tile", "x"], ["--threads", "-1"], ["--layout", "nc"], ["--device", "gpu"],
                          ["--nonsense"]):
            done = self.run_program(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(arguments[0], done.stderr)


class RealModel(Case):
    @classmethod
    def setUpClass(cls):
        if MODEL_FOLDER is None:
            raise unittest.SkipTest("no folder for waifu2x's model given")
        done = subprocess.run([sys.executable, HERE / "fetch_model", MODEL_FOLDER], capture_output=True, text=True)
        if done.returncode != 0:
            raise unittest.SkipTest(done.stderr.strip())

    def test_tiles_do_not_show(self):
        self.photo.write_bytes(png(17, 90, 3, noise(17 * 90 * 3)))
        whole = self.upscale(model=MODEL_FOLDER)
        self.assertEqual(whole[:3], (34, 180, 3))
        # Winograd's tiles lie elsewhere in a smaller image: what rounds to a byte may round to the next.
        self.same(self.upscale("--tile", 31, model=MODEL_FOLDER), whole, within=1)

    def test_a_plain_picture_stays_plain(self):
        """No frame at the border, no other colour."""
        for colour in (b"\x00\x00\x00", b"\xff\xff\xff", b"\x80\x80\x80", b"\xe0\x50\x20"):
            self.photo.write_bytes(png(20, 12, 3, colour * 240))
            _, _, _, pixels = self.upscale(model=MODEL_FOLDER)
            for i, value in enumerate(colour):
                self.assertLessEqual(max(abs(pixel - value) for pixel in pixels[i::3]), 4)
                for phase in range(4):  # the last layer has other weights for each
                    self.assertEqual(len({pixels[3 * (40 * y + x) + i] for y in range(phase // 2, 24, 2)
                                          for x in range(phase % 2, 40, 2)}), 1)

    def test_another_network_is_refused(self):
        param = (pathlib.Path(MODEL_FOLDER) / "scale2.0x_model.param").read_text()
        other = copying_model(self.folder / "model")
        (other / "scale2.0x_model.param").write_text(param)
        self.photo.write_bytes(png(2, 2, 1, bytes(4)))
        self.refuse("belongs to another .param file", model=other)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
    MODEL_FOLDER = sys.argv[2] if len(sys.argv) == 3 else None
    unittest.main(argv=sys.argv[:1])
