# SPDX-License-Identifier: MIT
"""Doubles a picture with the PyPI package ncnn, tile by tile as the example upscale does, for comparison.

compare_ncnn.py PARAM BIN INPUT OUTPUT WIDTH HEIGHT BORDER TILE_HEIGHT TILE_WIDTH THREADS

INPUT and OUTPUT are bare red, green and blue bytes.  Prints the seconds that ncnn took.
"""

import sys
import time

try:
    import ncnn
    import numpy
except ImportError as error:
    print(f"python3 cannot import {error.name}")
    sys.exit(3)


def main(param, binary, source, target, *numbers):
    width, height, border, tile_height, tile_width, threads = map(int, numbers)
    net = ncnn.Net()
    net.opt.num_threads = threads
    # float32 throughout, as Quern computes it
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    if net.load_param(param) != 0 or net.load_model(binary) != 0:
        sys.exit("ncnn does not load the model")

    picture = numpy.fromfile(source, numpy.uint8).reshape(height, width, 3)
    padded = numpy.pad(picture, ((border, border), (border, border), (0, 0)), mode="edge")
    result = numpy.zeros((2 * height, 2 * width, 3), numpy.uint8)
    seconds = 0.0
    for y in starts(height, tile_height):
        for x in starts(width, tile_width):
            tile = padded[y:y + tile_height + 2 * border, x:x + tile_width + 2 * border]
            tile = numpy.ascontiguousarray(tile.transpose(2, 0, 1), numpy.float32) * numpy.float32(1 / 255)
            extractor = net.create_extractor()
            extractor.input(net.input_names()[0], ncnn.Mat(tile).clone())
            start = time.perf_counter()
            status, out = extractor.extract(net.output_names()[0])
            seconds += time.perf_counter() - start
            if status != 0:
                sys.exit("ncnn does not run the model")
            pixels = numpy.clip(numpy.floor(numpy.array(out) * numpy.float32(255) + numpy.float32(0.5)), 0, 255)
            result[2 * y:2 * (y + tile_height), 2 * x:2 * (x + tile_width)] = pixels.transpose(1, 2, 0)
    result.tofile(target)
    print(seconds)


def starts(size, tile):
    """As many tiles as cover `size`, the last one moved back to end with it."""
    return [min(start, size - tile) for start in range(0, size, tile)]


main(*sys.argv[1:])
