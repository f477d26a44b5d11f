#include "tests/kernels/row_cases.h"

#include <array>

namespace strait::kernels {

std::string RowCase::name() const {
  constexpr std::array<const char*, 2> kRoundings{"", ", unbiased"};
  return std::to_string(format.bits) + " bits, groups of " + std::to_string(format.group) +
         (format.rotate ? ", rotated" : "") +
         kRoundings.at(static_cast<std::size_t>(draw.rounding)) + ", element " +
         std::to_string(static_cast<int>(element)) + ", content " +
         std::to_string(static_cast<int>(content)) + ", " + std::to_string(tokens) + " × " +
         std::to_string(width);
}

std::vector<RowCase> some_row_cases(std::mt19937& random) {
  constexpr std::array<std::int64_t, 12> kWidths{1, 5, 31, 32, 40, 64, 96, 100, 128, 200, 333, 768};
  std::vector<RowCase> cases;
  for (int bits = 2; bits <= 8; ++bits) {
    for (const int group : {32, 64, 128}) {
      for (int k = 0; k < 48; ++k) {
        RowCase one;
        one.format = {bits, group, k % 2 != 0};
        one.draw = {static_cast<Rounding>(k / 2 % 2), random()};
        one.element = static_cast<Element>(k % 3);
        one.content = static_cast<Content>(random() % 3);
        one.tokens = 1 + random() % 3;
        one.width = kWidths[random() % kWidths.size()];
        cases.push_back(one);
      }
    }
  }
  return cases;
}

}  // namespace strait::kernels
