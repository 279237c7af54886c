// SPDX-License-Identifier: MIT
#include "picture.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "model.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_FAILURE_STRINGS
#include <stb_image.h>
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#include <stb_image_write.h>

namespace upscale {
namespace {

constexpr size_t most_file_bytes = size_t{256} << 20;
constexpr int64_t most_pixels = int64_t{32} << 20;  // the result has four times as many; stb counts its bytes in int

std::string size_text(int64_t width, int64_t height) { return std::to_string(width) + "x" + std::to_string(height); }

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw failure(path.string() + " is a folder, must be a picture");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw failure("cannot open " + path.string() + ": " + std::strerror(errno));
  std::vector<uint8_t> content;
  char block[1 << 16];
  while (file.read(block, sizeof block), file.gcount() > 0) {
    content.insert(content.end(), block, block + file.gcount());
    if (content.size() > most_file_bytes)
      throw failure(path.string() + " has more than " + std::to_string(most_file_bytes >> 20) +
                    " MB, which is more than this program reads");
  }
  if (content.empty()) throw failure(path.string() + " is empty");
  return content;
}

bool has_known_start(const std::vector<uint8_t>& file) {
  for (const char* start : {"\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "BM"})
    if (file.size() >= std::strlen(start) && std::memcmp(file.data(), start, std::strlen(start)) == 0) return true;
  return false;
}

uint32_t little_endian(const uint8_t* at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value |= static_cast<uint32_t>(at[i]) << 8 * i;
  return value;
}

// stb takes what is missing at the end of a BMP for black.
bool is_short_bmp(const std::vector<uint8_t>& file, int64_t width, int64_t height) {
  if (file[0] != 'B' || file.size() < 30) return false;
  const int64_t offset = little_endian(&file[10], 4), bits = little_endian(&file[28], 2);
  return static_cast<int64_t>(file.size()) < offset + (width * bits + 31) / 32 * 4 * height;
}

// A new file beside `path`, under a name that nothing else uses.
std::filesystem::path part_of(const std::filesystem::path& path) {
  return path.string() + ".part" + std::to_string(getpid());
}

int open_part(const std::filesystem::path& path) {
  const int file = open(part_of(path).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) throw failure("cannot write " + path.string() + ": " + std::strerror(errno));
  return file;
}

// Channels of the picture that the network's three stand for.
int channel_of(const picture& picture, plane plane, int channel) {
  if (plane == plane::alpha) return picture.channels - 1;
  return picture.channels >= 3 ? channel : 0;
}

int64_t offset(const quern_tensor& tensor, int64_t channel, int64_t y, int64_t x) {
  return channel * tensor.stride[1] + y * tensor.stride[3] + x * tensor.stride[4];
}

// NaN becomes 0.
uint8_t to_byte(float value) {
  const float scaled = value * 255 + 0.5f;
  return !(scaled > 0) ? 0 : scaled >= 255 ? 255 : static_cast<uint8_t>(scaled);
}

}  // namespace

picture read_picture(const std::filesystem::path& path) {
  const std::vector<uint8_t> file = read_file(path);
  const int bytes = static_cast<int>(file.size());
  int width, height, channels;
  if (!stbi_info_from_memory(file.data(), bytes, &width, &height, &channels))
    throw failure(path.string() + (has_known_start(file) ? " is damaged, or its size makes no sense"
                                                         : " is not a PNG, JPEG or BMP picture"));
  if (int64_t{width} * height > most_pixels)
    throw failure(path.string() + " has " + size_text(width, height) + " pixels, must have at most " +
                  std::to_string(most_pixels) + " of them");
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      is_short_bmp(file, width, height) ? nullptr
                                        : stbi_load_from_memory(file.data(), bytes, &width, &height, &channels, 0),
      stbi_image_free);
  if (!pixels) throw failure(path.string() + " is damaged or cut short");
  return {width, height, channels, {pixels.get(), pixels.get() + int64_t{width} * height * channels}};
}

void check_output(const std::filesystem::path& path, const std::filesystem::path& input) {
  std::error_code error;
  if (path.extension() != ".png") throw failure("the output is a PNG: " + path.string() + " must end with .png");
  if (std::filesystem::exists(path, error)) {
    if (!std::filesystem::is_regular_file(path, error)) throw failure(path.string() + " is there and is not a file");
    if (std::filesystem::equivalent(path, input, error)) throw failure(path.string() + " is the input itself");
  }
  close(open_part(path));
  std::filesystem::remove(part_of(path), error);
}

void write_picture(const std::filesystem::path& path, const picture& picture) {
  std::vector<uint8_t> png;
  const auto append = [](void* to, void* data, int bytes) {
    const uint8_t* first = static_cast<const uint8_t*>(data);
    static_cast<std::vector<uint8_t>*>(to)->assign(first, first + bytes);  // all of it comes at once
  };
  const int width = static_cast<int>(picture.width), height = static_cast<int>(picture.height);
  if (!stbi_write_png_to_func(append, &png, width, height, picture.channels, picture.pixels.data(),
                              width * picture.channels))
    throw failure("cannot write " + path.string() + ": out of memory");

  FILE* file = fdopen(open_part(path), "wb");
  errno = 0;
  bool good = fwrite(png.data(), 1, png.size(), file) == png.size();
  good = fclose(file) == 0 && good;
  std::error_code error(good ? 0 : errno, std::generic_category());
  if (!error) std::filesystem::rename(part_of(path), path, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(part_of(path), ignored);
    throw failure("cannot write " + path.string() + ": " + error.message());
  }
}

bool is_translucent(const picture& picture) {
  if (!picture.has_alpha()) return false;
  for (size_t i = 0; i < picture.pixels.size(); i += static_cast<size_t>(picture.channels))
    if (picture.pixels[i + static_cast<size_t>(picture.channels) - 1] != 255) return true;
  return false;
}

void spread_colours(picture& picture, int64_t distance) {
  const int64_t width = picture.width, height = picture.height;
  const int colours = picture.channels - 1;
  std::vector<uint8_t> known(static_cast<size_t>(width * height)), next;
  for (int64_t y = 0; y < height; y++)
    for (int64_t x = 0; x < width; x++) known[static_cast<size_t>(y * width + x)] = picture.at(x, y, colours) != 0;
  for (; distance > 0; distance--) {
    next = known;
    for (int64_t y = 0; y < height; y++)
      for (int64_t x = 0; x < width; x++) {
        if (known[static_cast<size_t>(y * width + x)]) continue;
        int count = 0, sum[3] = {};
        for (int64_t v = std::max<int64_t>(y - 1, 0); v <= std::min(y + 1, height - 1); v++)
          for (int64_t u = std::max<int64_t>(x - 1, 0); u <= std::min(x + 1, width - 1); u++)
            if (known[static_cast<size_t>(v * width + u)]) {
              count++;
              for (int i = 0; i < colours; i++) sum[i] += picture.at(u, v, i);
            }
        if (count == 0) continue;
        for (int i = 0; i < colours; i++) picture.at(x, y, i) = static_cast<uint8_t>((sum[i] + count / 2) / count);
        next[static_cast<size_t>(y * width + x)] = 1;
      }
    known.swap(next);
  }
}

void to_tensor(const picture& picture, plane plane, int64_t x, int64_t y, const quern_tensor& tensor, float* data) {
  for (int c = 0; c < 3; c++) {
    const int channel = channel_of(picture, plane, c);
    for (int64_t i = 0; i < tensor.size[3]; i++) {
      const int64_t row = std::clamp<int64_t>(y + i, 0, picture.height - 1);
      for (int64_t j = 0; j < tensor.size[4]; j++) {
        const int64_t column = std::clamp<int64_t>(x + j, 0, picture.width - 1);
        data[offset(tensor, c, i, j)] = static_cast<float>(picture.at(column, row, channel)) * (1 / 255.0f);
      }
    }
  }
}

void from_tensor(const quern_tensor& tensor, const float* data, picture& picture, plane plane, int64_t x, int64_t y) {
  const bool colour = plane == plane::colours && picture.channels >= 3;
  for (int64_t i = 0; i < tensor.size[3]; i++)
    for (int64_t j = 0; j < tensor.size[4]; j++) {
      float rgb[3];
      for (int c = 0; c < 3; c++) rgb[c] = data[offset(tensor, c, i, j)];
      if (colour)
        for (int c = 0; c < 3; c++) picture.at(x + j, y + i, c) = to_byte(rgb[c]);
      else  // a grey picture stays grey
        picture.at(x + j, y + i, channel_of(picture, plane, 0)) = to_byte((rgb[0] + rgb[1] + rgb[2]) * (1 / 3.0f));
    }
}

}  // namespace upscale
