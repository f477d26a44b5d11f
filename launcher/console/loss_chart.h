#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace strait::console {

// A curve in characters, `rows` lines of at most `columns` characters with the scale at the left:
// every column is the mean of its share of the values, oldest first. Values that are not finite
// leave a gap. Nothing where there are no values or no room. Pure.
std::vector<std::string> loss_chart(std::span<const double> values, std::size_t columns,
                                    std::size_t rows);

}  // namespace strait::console
