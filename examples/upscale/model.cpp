// SPDX-License-Identifier: MIT
//
// The formats are ncnn's (docs/developer-guide/param-and-model-file-structure.md there).  A .param file
// is a number, a line with two counts, and one line a layer:
//
//   type name inputs outputs input... output... key=value...         -23310=n,value... is an array
//
// A .bin file is, layer by layer, the weights (a tag that says how they are coded, then halves, padded to
// four bytes) and the bias (floats without a tag).
#include "model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace upscale {
namespace {

constexpr uint32_t half_tag = 0x01306B47;
constexpr int64_t most_channels = 4096, most_filter = 15, most_layers = 100;
constexpr uintmax_t most_text = 1 << 20, most_bytes = 1 << 30;

std::string read_file(const std::filesystem::path& path, uintmax_t most) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) throw failure("cannot read the model " + path.string() + ": " + error.message());
  if (bytes > most) throw failure(path.string() + " has " + std::to_string(bytes) + " bytes: no model of this kind");
  std::string content(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(content.data(), static_cast<std::streamsize>(bytes)))
    throw failure("cannot read the model " + path.string());
  return content;
}

// One line of the .param file, and complaints about it.
struct param_line {
  const std::filesystem::path& path;
  int number;
  std::string type, name, input, output;
  std::map<int, std::string> values;

  [[noreturn]] void refuse(const std::string& what) const {
    throw failure(path.string() + " line " + std::to_string(number) + ": " + what);
  }

  double value(int key, double otherwise) const {
    const auto found = values.find(key);
    if (found == values.end()) return otherwise;
    char* end;
    const double result = std::strtod(found->second.c_str(), &end);
    if (*end != '\0' || found->second.empty())
      refuse("parameter " + std::to_string(key) + " is '" + found->second + "', must be a number");
    return result;
  }

  int64_t integer(int key, int64_t otherwise, int64_t least, int64_t most) const {
    const double result = value(key, static_cast<double>(otherwise));
    if (!(result >= static_cast<double>(least) && result <= static_cast<double>(most)) || result != std::floor(result))
      refuse(type + " parameter " + std::to_string(key) + " is " +
             (values.count(key) ? values.at(key) : std::string("missing")) + ", must be " +
             (least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most)));
    return static_cast<int64_t>(result);
  }
};

param_line parse_line(const std::filesystem::path& path, int number, const std::string& text) {
  param_line line{path, number, {}, {}, {}, {}, {}};
  std::istringstream words(text);
  int inputs = 0, outputs = 0;
  if (!(words >> line.type >> line.name >> inputs >> outputs))
    line.refuse("a layer is 'type name inputs outputs ...', not '" + text.substr(0, 60) + "'");
  if (inputs != (line.type == "Input" ? 0 : 1) || outputs != 1)
    line.refuse("layer " + line.name + " has " + std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
                " outputs, must have one of each: not a network of this kind");
  if (inputs == 1) words >> line.input;
  words >> line.output;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    char* end;
    const long key = std::strtol(word.c_str(), &end, 10);
    if (equals == std::string::npos || end != word.c_str() + equals || key < -100000 || key > 100000)
      line.refuse("'" + word + "' is not a parameter (number=value)");
    line.values[static_cast<int>(key)] = word.substr(equals + 1);
  }
  return line;
}

model_layer parse_layer(const param_line& line, int64_t c) {
  const bool transposed = line.type == "Deconvolution";
  if (!transposed && line.type != "Convolution")
    line.refuse("layer type " + line.type + ", must be Convolution or Deconvolution: not a network of this kind");
  for (const auto& [key, value] : line.values)
    if (!(key >= 0 && key <= 6) && key != 9 && key != -23310)
      line.refuse(line.type + " parameter " + std::to_string(key) + " is not one that this program knows");

  model_layer layer{};
  layer.name = line.name;
  layer.transposed = transposed;
  layer.c = c;
  layer.k = line.integer(0, 0, 1, most_channels);
  layer.filter = line.integer(1, 0, 1, most_filter);
  line.integer(2, 1, 1, 1);  // dilation
  line.integer(3, 1, transposed ? 2 : 1, transposed ? 2 : 1);
  // Only results that have all their taps: what misses some at a tile's edge would be a seam.
  layer.pad = transposed ? layer.filter - 1 : 0;
  line.integer(4, 0, layer.pad, layer.pad);
  line.integer(5, 0, 1, 1);  // there is a bias
  const int64_t weights = layer.k * layer.c * layer.filter * layer.filter;
  line.integer(6, 0, weights, weights);

  const int64_t activation = line.integer(9, 0, 0, 2);
  layer.relu = activation != 0;
  if (activation == 2) {  // leaky: an array of one number
    const auto slope = line.values.find(-23310);
    if (slope == line.values.end() || slope->second.rfind("1,", 0) != 0)
      line.refuse("parameter -23310 must hold the one slope of the leaky ReLU");
    param_line one = line;
    one.values[-23310] = slope->second.substr(2);
    layer.slope = static_cast<float>(one.value(-23310, 0));
  }
  layer.weights.resize(static_cast<size_t>(weights));
  layer.bias.resize(static_cast<size_t>(layer.k));
  return layer;
}

std::vector<model_layer> parse_param(const std::filesystem::path& path) {
  std::istringstream text(read_file(path, most_text));
  std::string words;
  long layers = 0, blobs = 0;
  if (!std::getline(text, words) || words.rfind("7767517", 0) != 0)
    throw failure(path.string() + " line 1: an ncnn model begins with 7767517");
  if (!std::getline(text, words) || !(std::istringstream(words) >> layers >> blobs) || layers < 2 ||
      layers > most_layers || blobs != layers)
    throw failure(path.string() + " line 2: must hold the counts of layers and blobs, alike and 2 to " +
                  std::to_string(most_layers) + ": not a network of this kind");

  std::vector<model_layer> result;
  std::string previous;
  for (long i = 0; i < layers; i++) {
    const int number = static_cast<int>(i) + 3;
    if (!std::getline(text, words))
      throw failure(path.string() + " ends at line " + std::to_string(number) + ", must have " +
                    std::to_string(layers) + " layers");
    const param_line line = parse_line(path, number, words);
    if (i == 0) {
      if (line.type != "Input") line.refuse("the first layer is " + line.type + ", must be Input");
      line.integer(2, 0, 3, 3);  // channels: red, green, blue
    } else {
      if (line.input != previous)
        line.refuse("layer " + line.name + " reads " + line.input + ", must read " + previous);
      result.push_back(parse_layer(line, result.empty() ? 3 : result.back().k));
      if (result.back().transposed != (i == layers - 1))
        line.refuse("the last layer, and no other, must be a Deconvolution: not a network of this kind");
    }
    previous = line.output;
  }
  if (result.back().k != 3)
    throw failure(path.string() + ": the last layer has " + std::to_string(result.back().k) + " channels, must have 3");
  return result;
}

float from_half(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 1023u;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(fraction), -24);
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

size_t half_bytes(size_t count) { return (count * 2 + 3) / 4 * 4; }

void read_weights(const std::filesystem::path& path, std::vector<model_layer>& layers) {
  size_t needed = 0;
  for (const model_layer& layer : layers)
    needed += sizeof half_tag + half_bytes(layer.weights.size()) + layer.bias.size() * sizeof(float);
  const std::string content = read_file(path, most_bytes);
  if (content.size() != needed)
    throw failure(path.string() + " has " + std::to_string(content.size()) + " bytes, must have " +
                  std::to_string(needed) + ": it is damaged, or belongs to another .param file");

  const char* at = content.data();
  for (model_layer& layer : layers) {
    uint32_t tag;
    std::memcpy(&tag, at, sizeof tag);
    if (tag != half_tag)
      throw failure(path.string() + " byte " + std::to_string(at - content.data()) + ": layer " + layer.name +
                    " must begin with the tag of half precision weights, 0x01306B47");
    at += sizeof tag;
    bool finite = true;
    for (size_t i = 0; i < layer.weights.size(); i++) {
      uint16_t half;
      std::memcpy(&half, at + 2 * i, sizeof half);
      layer.weights[i] = from_half(half);
      finite = finite && std::isfinite(layer.weights[i]);
    }
    at += half_bytes(layer.weights.size());
    std::memcpy(layer.bias.data(), at, layer.bias.size() * sizeof(float));
    at += layer.bias.size() * sizeof(float);
    for (const float bias : layer.bias) finite = finite && std::fabs(bias) < 1e6f;
    if (!finite) throw failure(path.string() + " is damaged: layer " + layer.name + " has weights that are no numbers");
  }
}

// A convolution loses filter - 1 pixels; the last layer makes 2 (n - 1) + filter - 2 (filter - 1) of n.
int64_t border(const std::filesystem::path& path, const std::vector<model_layer>& layers) {
  int64_t lost = 0;
  for (const model_layer& layer : layers) lost += layer.transposed ? 0 : layer.filter - 1;
  const int64_t four = 2 * lost + layers.back().filter;
  if (four % 4 != 0) throw failure(path.string() + ": filters of these sizes cannot double a picture");
  return four / 4;
}

}  // namespace

model read_model(const std::filesystem::path& folder, const std::string& name) {
  model result;
  const std::filesystem::path param = folder / (name + ".param");
  result.layers = parse_param(param);
  result.border = border(param, result.layers);
  read_weights(folder / (name + ".bin"), result.layers);
  return result;
}

}  // namespace upscale
