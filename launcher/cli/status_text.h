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
// Traffic of the last step: over boundaries, and between replicas; tables for a screen of that
// width (base::table_lines).
std::vector<std::string> traffic_lines(const nlohmann::json& status, std::size_t columns = 0);
// If replicas have left: the active ones, why others are absent, and which ones are rejoining.
std::vector<std::string> replica_lines(const nlohmann::json& status);
// How often the run restarted by itself, and the cause of the last restart; empty: never.
std::vector<std::string> restart_lines(const nlohmann::json& status);
// What is slow, and what each process computes or waits for.
std::vector<std::string> process_lines(const nlohmann::json& status);

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

// One picture of a run, no larger than the screen: headline, progress, the losses so far, traffic
// over boundaries, and for a `live` run what the processes do. Lines without room are dropped from
// the bottom and counted. Pure. Throws nlohmann's exception if the status was not written by this
// build.
std::vector<std::string> watch_frame(const std::string& headline, const nlohmann::json& status,
                                     bool live, std::span<const double> losses, ScreenSize size);

}  // namespace strait::cli
