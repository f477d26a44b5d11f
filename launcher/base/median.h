#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace strait::base {

// The median, which a few outliers do not move. The upper middle of an even count; 0 without
// values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace strait::base
