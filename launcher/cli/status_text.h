#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace strait::cli {

// "step 12/300 · loss 0.412 · ETA 0:41 · checkpoint at step 10"
std::string numbers_line(const nlohmann::json& status);
// How a run ended, according to status.json: "ended with code 30 (a process was lost): …".
std::string end_line(const std::string& run, const nlohmann::json& status);
// How far a run is, for people: from its status, or in its launcher.
struct RunView {
  std::int64_t step = 0;
  std::int64_t steps = 0;  // 0: it has not begun to train
  std::optional<double> eta_seconds = {};
  std::optional<std::int64_t> checkpoint = {};
  std::vector<std::string> labels = {};  // of the latest step, the loss first
  std::span<const double> losses = {};   // so far; empty: without a curve
  std::string doing = {};                // what it waits for; empty: it trains
};
RunView view_of(const nlohmann::json& status);
// A bar, and what the view says, in lines that are folded between labels to this width. The
// launcher redraws them in place, and watch_frame() begins with them.
std::vector<std::string> live_block(const RunView& view, std::size_t columns);
// A line of these functions in the colours of what it means: a bar, something slow or lost, a
// failure.
std::string in_tones(const std::string& line, bool colors);

// The line, broken at blanks where it is wider; 0: of any width. A word alone may be wider. Its
// next lines begin with `indent` blanks.
std::vector<std::string> wrapped(const std::string& line, std::size_t columns,
                                 std::size_t indent = 4);
// Lines that are wider go on below where their second column begins. Commands, which are copied,
// stay whole.
std::string folded_text(const std::string& text, std::size_t columns);
// All but these, for a screen of that width; status and watch show the same. First the traffic of
// the last step, over boundaries and between replicas, as tables that fold (base::table_lines).
// Then restarts by itself, and of a `live` run which replicas are active, which have left or rejoin
// and why, what is slow, and what each process computes or waits for. Last the forecast of a step
// and what it takes, the parts that differ most first.
std::vector<std::vector<std::string>> state_parts(const nlohmann::json& status, bool live,
                                                  std::size_t columns = 0);

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
