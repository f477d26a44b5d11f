#pragma once

#include <random>
#include <string>

#include "tests/kernels/random_rows.h"

namespace strait::kernels {

// Something to quantise and how, for whoever compares one implementation with another.
struct RowCase {
  GroupFormat format;
  Draw draw;
  Element element = Element::float32;
  Content content = Content::plain;
  std::int64_t tokens = 2;
  std::int64_t width = 64;

  std::string name() const;
};

// Every format, rotated or not, with every rounding; the rest drawn, so that all pairs come up.
std::vector<RowCase> some_row_cases(std::mt19937& random);

}  // namespace strait::kernels
