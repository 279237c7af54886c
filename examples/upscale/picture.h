// SPDX-License-Identifier: MIT
//
// Pictures: their files, and the way between them and the network's tensors.
#pragma once

#include <quern/quern.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace upscale {

struct picture {
  int64_t width, height;
  int channels;  // 1 grey, 2 grey and alpha, 3 colour, 4 colour and alpha
  std::vector<uint8_t> pixels;

  bool has_alpha() const { return channels == 2 || channels == 4; }
  uint8_t& at(int64_t x, int64_t y, int channel) {
    return pixels[static_cast<size_t>((y * width + x) * channels + channel)];
  }
  const uint8_t& at(int64_t x, int64_t y, int channel) const { return const_cast<picture*>(this)->at(x, y, channel); }
};

// Reads a PNG, JPEG or BMP file; throws failure.
picture read_picture(const std::filesystem::path& path);

// Throws failure when write_picture could not write there; leaves nothing behind.
void check_output(const std::filesystem::path& path, const std::filesystem::path& input);

// Writes a PNG: whole, or (failure) not at all.
void write_picture(const std::filesystem::path& path, const picture&);

// True when some pixel is not opaque.
bool is_translucent(const picture&);

// Invisible pixels take the colour of visible ones up to `distance` pixels away, so that what hides
// behind alpha zero (black, often) does not show at the edge of what is visible.
void spread_colours(picture&, int64_t distance);

// The network sees three channels.  Which of the picture's those are: its colours (grey: three times the
// same), or its alpha, as a grey picture.
enum class plane { colours, alpha };

// Rows y.. and columns x.. of the picture, as many as `tensor` has, into the image at `data`, as 0 to 1.
// Beyond the picture its edge goes on.
void to_tensor(const picture&, plane, int64_t x, int64_t y, const quern_tensor& tensor, float* data);

// The reverse: the whole image to rows y.. and columns x.. of the picture, rounded and clamped.
void from_tensor(const quern_tensor& tensor, const float* data, picture&, plane, int64_t x, int64_t y);

}  // namespace upscale
