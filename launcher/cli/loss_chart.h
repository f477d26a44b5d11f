#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Pictures of characters. All functions are pure.
namespace strait::cli {

// "█████░░░░░  50 %", with a bar of this width.
std::string progress_bar(std::int64_t step, std::int64_t steps, std::size_t columns);

// A curve: every column is the mean of its share of the values, oldest first. Values that are not
// finite leave a gap. One line without a scale:
std::string curve_of(std::span<const double> values, std::size_t columns);
// `rows` lines of at most `columns` characters, with the scale on the left. Empty without values or
// room.
std::vector<std::string> loss_chart(std::span<const double> values, std::size_t columns,
                                    std::size_t rows);

}  // namespace strait::cli
