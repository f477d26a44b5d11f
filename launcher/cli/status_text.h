#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace strait::cli {

// "step 12/300 · loss 0.412 · ETA 0:41 · checkpoint at step 10"
std::string numbers_line(const nlohmann::json& status);
// How a run ended, according to status.json: "ended with code 30 (a process was lost): …".
std::string end_line(const std::string& run, const nlohmann::json& status);
// The line, broken at blanks where it is wider; 0: of any width. A word alone may be wider.
std::vector<std::string> wrapped(const std::string& line, std::size_t columns);
// All but these, for a screen of that width; status and watch show the same. First the traffic of
// the last step, over boundaries and between replicas, as tables that fold (base::table_lines).
// Then the forecast of a step beside what it takes, the parts that differ most first. Then restarts
// by itself, and of a `live` run which replicas are active, which have left or rejoin and why, what
// is slow, and what each process computes or waits for.
std::vector<std::vector<std::string>> state_parts(const nlohmann::json& status, bool live,
                                                  std::size_t columns = 0);

// A curve in characters: `rows` lines of at most `columns` characters, with the scale on the left.
// Every column is the mean of its share of the values, oldest first. Values that are not finite
// leave a gap. Empty without values or room. Pure.
std::vector<std::string> loss_chart(std::span<const double> values, std::size_t columns,
                                    std::size_t rows);

// The size of a terminal, in characters.
struct ScreenSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// One picture of a run, no larger than the screen: headline, progress, the losses so far, and
// state_parts(). Lines without room are dropped from
// the bottom and counted. Pure. Throws nlohmann's exception if the status was not written by this
// build.
std::vector<std::string> watch_frame(const std::string& headline, const nlohmann::json& status,
                                     bool live, std::span<const double> losses, ScreenSize size);

}  // namespace strait::cli
