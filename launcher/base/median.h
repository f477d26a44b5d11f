#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace strait::base {

// What a few outliers do not move. Of an even count the upper middle; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace strait::base
