#include "tests/kernels/random_rows.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/plain_rows.h"

namespace strait::kernels {
namespace {

float wild_value(std::mt19937& random) {
  std::normal_distribution<float> normal;
  const float value = normal(random);
  switch (random() % 40) {
    case 0:
      return 0;
    case 1:
      return value * 100;
    case 2:
      return std::ldexp(value, static_cast<int>(random() % 60) - 30);
    case 3:
      return random() % 10 == 0 ? std::ldexp(value, -127) : value;
    default:
      return value;
  }
}

float broken_value(std::mt19937& random) {
  switch (random() % 4) {
    case 0:
      return std::numeric_limits<float>::quiet_NaN();
    case 1:
      return -std::numeric_limits<float>::infinity();
    case 2:
      return kHuge;
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace

RandomRow::RandomRow(std::int64_t tokens, std::int64_t width, Element element)
    : tokens_(tokens), width_(width), element_(element), bytes_(4 + size()) {}

void RandomRow::fill(Content content, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> floats(static_cast<std::size_t>(tokens_ * width_));
  bool zeros = false;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (i % 32 == 0) zeros = content != Content::plain && random() % 12 == 0;
    floats[i] = zeros ? 0 : content == Content::plain ? normal(random) : wild_value(random);
    if (content == Content::broken && random() % 400 == 0) floats[i] = broken_value(random);
  }
  plain::write_values(output(), floats);
}

std::vector<float> RandomRow::floats() const { return plain::read_values(values()); }

}  // namespace strait::kernels
