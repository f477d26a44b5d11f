// Holds the kernels of layers against their formulas in float64: on a GPU, or in the emulation.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/gpu_layers.h"
#include "kernels/group_rules.h"
#include "tests/gpu/gpu_memory.h"

namespace strait::kernels {
namespace {

constexpr std::uint32_t kSeed = 20261127;
using Numbers = std::vector<double>;
using Bytes = std::vector<std::byte>;

// As hardware rounds; written here once more, so that a mistake in the kernels' is seen.
double rounded(double value, Element element) {
  const auto narrow = static_cast<float>(value);
  if (element == Element::float32 || std::isnan(narrow)) return narrow;
  int exponent = 0;
  std::frexp(narrow, &exponent);
  const double unit = std::ldexp(1.0, exponent - 8);
  return std::nearbyint(narrow / unit) * unit;
}

// Numbers of an element in the GPU's memory, at some offset.
class Values {
 public:
  Values(const Numbers& numbers, Element element, std::mt19937& random)
      : element_(element), count_(numbers.size()), at_(16 * (random() % 3) + offset(random)) {
    memory_.reserve(at_ + size() + 1);
    Bytes bytes(size());
    for (std::size_t i = 0; i < count_; ++i) {
      const std::uint32_t bits = bits_of_float(static_cast<float>(numbers[i]));
      if (element == Element::float32) {
        std::memcpy(bytes.data() + 4 * i, &bits, 4);
      } else {
        const auto half = static_cast<std::uint16_t>(bits >> 16U);
        std::memcpy(bytes.data() + 2 * i, &half, 2);
      }
    }
    if (count_ > 0) require(cudaMemcpy(data(), bytes.data(), size(), cudaMemcpyHostToDevice));
  }

  void* data() const { return memory_.at(at_); }
  Bytes bytes() const {
    Bytes bytes(size());
    if (count_ > 0) require(cudaMemcpy(bytes.data(), data(), size(), cudaMemcpyDefault));
    return bytes;
  }
  Numbers numbers() const {
    const Bytes all = bytes();
    Numbers numbers;
    for (std::size_t i = 0; i < count_; ++i) {
      std::uint32_t bits = 0;
      if (element_ == Element::float32) {
        std::memcpy(&bits, all.data() + 4 * i, 4);
      } else {
        std::uint16_t half = 0;
        std::memcpy(&half, all.data() + 2 * i, 2);
        bits = static_cast<std::uint32_t>(half) << 16U;
      }
      numbers.push_back(float_of_bits(bits));
    }
    return numbers;
  }

 private:
  // Most tensors begin where vectors do; parts of others do not.
  std::size_t offset(std::mt19937& random) const {
    return random() % 3 == 0 ? static_cast<std::size_t>(bytes_of(element_)) * (random() % 8) : 0;
  }
  std::size_t size() const { return count_ * static_cast<std::size_t>(bytes_of(element_)); }

  Element element_;
  std::size_t count_;
  std::size_t at_;
  GpuMemory memory_{GpuMemory::Kind::device};
};

Numbers draw(std::int64_t count, Element element, std::mt19937& random, double size = 1) {
  std::normal_distribution<double> normal(0, size);
  Numbers numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(rounded(normal(random), element));
  return numbers;
}

// Room for what a kernel writes; NaN, so that what it leaves out is seen.
Numbers unwritten(std::int64_t count) { return Numbers(static_cast<std::size_t>(count), NAN); }

std::string wrong_value(const char* what, std::size_t i, double found, double expected) {
  return std::string(what) + ", value " + std::to_string(i) + ": " + std::to_string(found) +
         " for " + std::to_string(expected);
}

std::string difference(const char* what, const Values& found, const Numbers& expected,
                       double relative, double absolute) {
  const Numbers numbers = found.numbers();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double limit = relative * std::fabs(expected[i]) + absolute;
    if (numbers[i] == expected[i] || std::fabs(numbers[i] - expected[i]) <= limit) continue;
    if (std::isnan(numbers[i]) && std::isnan(expected[i])) continue;
    return wrong_value(what, i, numbers[i], expected[i]);
  }
  return "";
}

// Of values that were rounded from float64 where the kernel rounds: of bfloat16 nearly all are
// equal, so that a rounding too many or too few shows. Float32 may be on the other side of a half,
// in rare cases, and is then a unit away, or two where such a value was multiplied.
std::string rounding_difference(const char* what, const Values& found, const Numbers& expected,
                                Element element) {
  if (element == Element::float32) return difference(what, found, expected, 1e-5, 1e-5);
  const std::string far = difference(what, found, expected, 1.0 / 64, 1e-5);
  if (!far.empty()) return far;
  const Numbers numbers = found.numbers();
  std::size_t others = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // What is left of a difference of equals has no digits to compare.
    if (std::isnan(expected[i]) || std::fabs(numbers[i] - expected[i]) <= 1e-6) continue;
    if (++others > 1 + expected.size() / 50) {
      return wrong_value(what, i, numbers[i], expected[i]) + ", as are " +
             std::to_string(others - 1) + " before it";
    }
  }
  return "";
}

struct Norm {
  Numbers output;
  Numbers scales;
  Numbers input_gradient;
  Numbers weight_gradient;
};

Norm plain_norm(const NormShape& shape, const Numbers& input, const Numbers& weight,
                const Numbers& slope) {
  Norm norm;
  norm.weight_gradient.resize(weight.size());
  const auto width = static_cast<std::size_t>(shape.width);
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    const double* const x = input.data() + row * width;
    const double* const g = slope.data() + row * width;
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += x[i] * x[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + shape.epsilon);
    norm.scales.push_back(scale);
    double along = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double factor = weight[i] + (shape.one_plus_weight ? 1 : 0);
      const double normal =
          shape.one_plus_weight ? x[i] * scale : rounded(x[i] * scale, shape.element);
      norm.output.push_back(rounded(normal * factor, shape.element));
      norm.weight_gradient[i] += g[i] * x[i] * scale;
      along += g[i] * factor * x[i] * scale / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      const double factor = weight[i] + (shape.one_plus_weight ? 1 : 0);
      norm.input_gradient.push_back(
          rounded((g[i] * factor - x[i] * scale * along) * scale, shape.element));
    }
  }
  return norm;
}

// Of the rows of one weight-gradient array.
Numbers column_sums(const Numbers& rows, std::size_t width) {
  Numbers sums(width);
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i % width] += rows[i];
  return sums;
}

std::string norm_difference(const NormShape& shape, std::mt19937& random) {
  const std::int64_t count = shape.rows * shape.width;
  const Numbers x = draw(count, shape.element, random, 3);
  const Numbers w = draw(shape.width, shape.element, random);
  const Numbers g = draw(count, shape.element, random);
  const Norm plain = plain_norm(shape, x, w, g);
  const Values input(x, shape.element, random);
  const Values weight(w, shape.element, random);
  const Values slope(g, shape.element, random);
  const Values output(unwritten(count), shape.element, random);
  const Values scales(unwritten(shape.rows), Element::float32, random);
  const Values into(unwritten(count), shape.element, random);
  const std::int64_t sum_rows = cuda::norm_sum_rows(shape);
  const Values sums(unwritten(sum_rows * shape.width), Element::float32, random);
  auto* const scale = static_cast<float*>(scales.data());
  cuda::rms_norm(nullptr, shape, input.data(), weight.data(), scale, output.data());
  cuda::rms_norm_gradient(nullptr, shape, input.data(), weight.data(), scale, slope.data(),
                          into.data(), static_cast<float*>(sums.data()));
  require(cudaStreamSynchronize(nullptr));
  const double root = std::sqrt(static_cast<double>(shape.rows));
  std::string found = difference("scales", scales, plain.scales, 1e-5, 0);
  if (found.empty()) found = rounding_difference("output", output, plain.output, shape.element);
  if (found.empty()) {
    found = rounding_difference("gradient", into, plain.input_gradient, shape.element);
  }
  if (!found.empty()) return found;
  const Values total(column_sums(sums.numbers(), w.size()), Element::float32, random);
  found = difference("weight's gradient", total, plain.weight_gradient, 1e-5, 1e-5 * root);
  if (!found.empty()) return found;
  // Once more, with threads in another order.
  const Values sums_again(unwritten(sum_rows * shape.width), Element::float32, random);
  const Values into_again(unwritten(count), shape.element, random);
  cuda::rms_norm_gradient(nullptr, shape, input.data(), weight.data(), scale, slope.data(),
                          into_again.data(), static_cast<float*>(sums_again.data()));
  require(cudaStreamSynchronize(nullptr));
  if (sums_again.bytes() != sums.bytes() || into_again.bytes() != into.bytes()) {
    return "twice, other bits";
  }

  // A row has the same bits alone, and without the weight's gradient.
  NormShape one = shape;
  one.rows = 1;
  const auto row_bytes = static_cast<std::size_t>(shape.width * bytes_of(shape.element));
  const std::size_t last = static_cast<std::size_t>(shape.rows - 1) * row_bytes;
  const auto from = [last](const Values& values) {
    return static_cast<std::byte*>(values.data()) + last;
  };
  const auto is_last_row = [&](const Values& row, const Values& all) {
    return std::memcmp(row.bytes().data(), all.bytes().data() + last, row_bytes) == 0;
  };
  const Values output_alone(unwritten(shape.width), shape.element, random);
  const Values into_alone(unwritten(shape.width), shape.element, random);
  cuda::rms_norm(nullptr, one, from(input), weight.data(), scale, output_alone.data());
  cuda::rms_norm_gradient(nullptr, one, from(input), weight.data(), scale, from(slope),
                          into_alone.data(), nullptr);
  require(cudaStreamSynchronize(nullptr));
  if (!is_last_row(output_alone, output)) return "a row alone has other bits";
  return is_last_row(into_alone, into) ? "" : "a row's gradient alone has other bits";
}

std::string name_of(const NormShape& shape) {
  return "a norm of " + std::to_string(shape.rows) + " rows of " + std::to_string(shape.width);
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return x > 0 ? x : 0;
    default:
      return x / (1 + std::exp(-x));
  }
}

std::string gated_difference(const GatedShape& shape, std::mt19937& random) {
  const std::int64_t count = shape.rows * shape.width;
  const bool halves = shape.stride != shape.width;
  const Numbers a = draw(shape.rows * shape.stride, shape.element, random, 2);
  const Numbers b = draw(count, shape.element, random);
  const Numbers g = draw(count, shape.element, random);
  Numbers product;
  Numbers into_a = unwritten(shape.rows * shape.stride);
  Numbers into_b = unwritten(count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(shape.width);
    const std::size_t at =
        row * static_cast<std::size_t>(shape.stride) + i % static_cast<std::size_t>(shape.width);
    const std::size_t up_at = at + static_cast<std::size_t>(shape.width);
    const double up = halves ? a[up_at] : b[i];
    const auto round = [&](double value) { return rounded(value, shape.element); };
    const double active = round(activated(shape.activation, a[at]));
    product.push_back(round(active * up));
    const double step = 1e-5;
    const double rise =
        (activated(shape.activation, a[at] + step) - activated(shape.activation, a[at] - step)) /
        (2 * step);
    into_a[at] = round(round(g[i] * up) * rise);
    (halves ? into_a[up_at] : into_b[i]) = round(g[i] * active);
  }
  const Values gate(a, shape.element, random);
  const Values up(b, shape.element, random);
  const Values slope(g, shape.element, random);
  const Values found_product(unwritten(count), shape.element, random);
  const Values found_a(unwritten(shape.rows * shape.stride), shape.element, random);
  const Values found_b(unwritten(count), shape.element, random);
  const auto up_in = [&](const Values& first, const Values& second) -> void* {
    if (!halves) return second.data();
    return static_cast<std::byte*>(first.data()) + shape.width * bytes_of(shape.element);
  };
  cuda::gated_product(nullptr, shape, gate.data(), up_in(gate, up), found_product.data());
  cuda::gated_product_gradient(nullptr, shape, gate.data(), up_in(gate, up), slope.data(),
                               found_a.data(), up_in(found_a, found_b));
  require(cudaStreamSynchronize(nullptr));
  std::string found = rounding_difference("product", found_product, product, shape.element);
  if (found.empty()) found = rounding_difference("gate's gradient", found_a, into_a, shape.element);
  if (found.empty() && !halves) {
    found = rounding_difference("other gradient", found_b, into_b, shape.element);
  }
  return found;
}

// Rounds every product and every sum, so bits are equal.
std::string rotation_difference(HeadShape shape, std::mt19937& random) {
  const std::int64_t count = shape.tokens * shape.token_stride;
  const Numbers x = draw(count, shape.element, random);
  const Numbers c = draw(shape.tokens * shape.half, shape.element, random);
  const Numbers s = draw(shape.tokens * shape.half, shape.element, random);
  const auto round = [&](double value) { return rounded(value, shape.element); };
  Numbers expected;
  for (std::int64_t i = 0; i < shape.tokens * shape.heads * shape.width; ++i) {
    const std::int64_t at = i % shape.width;
    const std::int64_t head = i / shape.width % shape.heads;
    const std::int64_t token = i / shape.width / shape.heads;
    const double* const from = x.data() + token * shape.token_stride + head * shape.head_stride;
    if (at >= 2 * shape.half) {
      expected.push_back(from[at]);
      continue;
    }
    const std::int64_t pair = shape.neighbours ? at / 2 : at % shape.half;
    const bool second = shape.neighbours ? at % 2 == 1 : at >= shape.half;
    const std::int64_t other = shape.neighbours ? (second ? at - 1 : at + 1)
                                                : (second ? at - shape.half : at + shape.half);
    const double along = round(from[at] * c[static_cast<std::size_t>(token * shape.half + pair)]);
    const double across =
        round(from[other] * s[static_cast<std::size_t>(token * shape.half + pair)]);
    expected.push_back(round(second != shape.inverse ? along + across : along - across));
  }
  const Values heads(x, shape.element, random);
  const Values cosine(c, shape.element, random);
  const Values sine(s, shape.element, random);
  const Values result(unwritten(static_cast<std::int64_t>(expected.size())), shape.element, random);
  cuda::rotate_heads(nullptr, shape, heads.data(), cosine.data(), sine.data(), result.data());
  require(cudaStreamSynchronize(nullptr));
  return difference("rotated", result, expected, 0, 0);
}

std::string loss_difference(const LogitShape& shape, std::mt19937& random) {
  const auto vocabulary = static_cast<std::size_t>(shape.vocabulary);
  Numbers logits = draw(shape.rows * shape.vocabulary, shape.element, random, 8);
  if (shape.rows > 3) {
    logits[vocabulary + vocabulary / 2] = NAN;  // is not hidden,
    for (std::size_t i = 0; i < std::min<std::size_t>(vocabulary, 16); ++i) {
      logits[2 * vocabulary + i] = NAN;  // nor where a thread has no other values,
    }
    logits[3 * vocabulary] = -INFINITY;  // which is a probability of zero
    logits[4 * vocabulary - 1] = 200;    // and this is more than e can be raised to
  }
  std::vector<std::int64_t> targets;
  Numbers log_probabilities;
  Numbers slopes;
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    const double* const of_row = logits.data() + row * vocabulary;
    const std::size_t target = random() % vocabulary;
    targets.push_back(static_cast<std::int64_t>(target));
    double sum = 0;
    for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(of_row[i]);
    log_probabilities.push_back(of_row[target] - std::log(sum));
    for (std::size_t i = 0; i < vocabulary; ++i) {
      const double probability = std::exp(of_row[i]) / sum;
      slopes.push_back(rounded(probability - (i == target ? 1 : 0), shape.element));
    }
  }
  const Values in_place(logits, shape.element, random);
  const Values found(unwritten(shape.rows), Element::float32, random);
  const Values without(unwritten(shape.rows), Element::float32, random);
  GpuMemory places(GpuMemory::Kind::device);
  places.reserve(targets.size() * sizeof(std::int64_t));
  require(cudaMemcpy(places.data(), targets.data(), places.size(), cudaMemcpyHostToDevice));
  const auto* const at = static_cast<const std::int64_t*>(places.data());
  cuda::cross_entropy(nullptr, shape, in_place.data(), at, static_cast<float*>(without.data()),
                      nullptr);
  cuda::cross_entropy(nullptr, shape, in_place.data(), at, static_cast<float*>(found.data()),
                      in_place.data());
  require(cudaStreamSynchronize(nullptr));
  if (found.bytes() != without.bytes()) return "other log probabilities without slopes";
  std::string wrong = difference("log probabilities", found, log_probabilities, 1e-5, 1e-5);
  if (wrong.empty()) {
    wrong = rounding_difference("slopes", in_place, slopes, shape.element);
  }
  return wrong;
}

class Comparison {
 public:
  void compare(const std::string& name, const std::function<std::string(std::mt19937&)>& work) {
    std::mt19937 random(kSeed + static_cast<std::uint32_t>(compared_));
#ifdef STRAIT_EMULATED_GPU
    emulated::set_seed(kSeed + static_cast<std::uint32_t>(compared_));
#endif
    ++compared_;
    const std::string found = work(random);
    if (found.empty()) return;
    std::printf("kernel and formula differ: %s: %s (case %zu)\n", name.c_str(), found.c_str(),
                compared_ - 1);
    ++failures_;
  }
  std::size_t compared() const { return compared_; }
  int failures() const { return failures_; }

 private:
  std::size_t compared_ = 0;
  int failures_ = 0;
};

void compare_norms(Comparison& comparison, Element element) {
  for (const bool one_plus : {false, true}) {
    for (const std::int64_t width : {1, 8, 36, 64, 128, 250, 768, 2048, 4104, 8200, 16384}) {
      for (const std::int64_t rows : {1, 3, 300}) {
        if (rows * width > 80000) continue;
        const NormShape shape{element, rows, width, 1e-5F, one_plus};
        comparison.compare(name_of(shape),
                           [&](auto& random) { return norm_difference(shape, random); });
      }
    }
  }
  // More rows than there are blocks for gradients, of one warp and of several.
  for (const NormShape& many :
       {NormShape{element, 1100, 24, 1e-5F, false}, NormShape{element, 270, 520, 1e-5F, false}}) {
    comparison.compare(name_of(many), [&](auto& random) { return norm_difference(many, random); });
  }
}

void compare_gates(Comparison& comparison, Element element) {
  for (const Activation activation :
       {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
    for (const std::int64_t width : {8, 40, 1000}) {
      for (const std::int64_t stride : {width, 2 * width}) {
        const GatedShape shape{element, activation, 5, width, stride};
        comparison.compare("a gated product of width " + std::to_string(width),
                           [&](auto& random) { return gated_difference(shape, random); });
      }
    }
  }
}

void compare_rotations(Comparison& comparison, Element element) {
  for (int kind = 0; kind < 4; ++kind) {
    for (const std::int64_t half : {8, 24, 32}) {
      for (const std::int64_t rest : {0, 16}) {
        HeadShape shape{element, kind % 2 == 1, kind / 2 == 1, 5, 3, 2 * half + rest, half, 0, 0};
        shape.head_stride = shape.width + (rest == 0 ? 0 : 8);
        shape.token_stride = shape.heads * shape.head_stride + 16;
        comparison.compare("a rotation of " + std::to_string(half) + " pairs",
                           [&](auto& random) { return rotation_difference(shape, random); });
      }
    }
  }
}

void compare_losses(Comparison& comparison, Element element) {
  for (const std::int64_t vocabulary : {1, 5, 8, 29, 1000, 4097, 9001}) {
    for (const std::int64_t rows : {1, 5}) {
      const LogitShape shape{element, rows, vocabulary};
      comparison.compare("cross entropy of " + std::to_string(vocabulary) + " tokens",
                         [&](auto& random) { return loss_difference(shape, random); });
    }
  }
}

}  // namespace
}  // namespace strait::kernels

int main() {
  using namespace strait::kernels;
  Comparison comparison;
  for (const Element element : {Element::float32, Element::bfloat16}) {
    compare_norms(comparison, element);
    compare_gates(comparison, element);
    compare_rotations(comparison, element);
    compare_losses(comparison, element);
  }
  std::printf("%zu layers: %d differ from their formulas\n", comparison.compared(),
              comparison.failures());
  return comparison.failures() == 0 ? 0 : 1;
}
