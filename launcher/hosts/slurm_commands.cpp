#include "launcher/hosts/slurm_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

// squeue prints columns of a fixed width, in any version.
struct QueueColumn {
  const char* name;
  std::size_t width;
};
constexpr std::array<QueueColumn, 6> kQueueColumns = {{{"state", 20},
                                                       {"reason", 60},
                                                       {"nodelist", 400},
                                                       {"timeused", 20},
                                                       {"timelimit", 20},
                                                       {"restartcnt", 12}}};

constexpr std::array<std::string_view, 6> kWaitingStates = {
    "CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"};
constexpr std::array<std::string_view, 10> kEndedStates = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE",      "FAILED",
    "NODE_FAIL", "PREEMPTED", "REVOKED",   "OUT_OF_MEMORY", "TIMEOUT"};

bool is_among(const auto& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \n") + 1 - first);
}

[[noreturn]] void refuse_answer(const char* program, std::string_view answer) {
  throw base::UserError(base::ExitCode::bad_input,
                        fmt::format("strait cannot parse the output of {}: {}", program,
                                    base::printable(answer.substr(0, 200))));
}

std::int64_t whole_number(const char* program, std::string_view text, std::string_view answer) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    refuse_answer(program, answer);
  }
  return number;
}

constexpr std::chrono::seconds kSlurmLimit{60};

}  // namespace

bool JobState::is_pending() const { return is_among(kWaitingStates, state); }
bool JobState::is_active() const { return !is_among(kEndedStates, state); }

std::string JobState::sentence() const {
  std::string text = state;
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (is_pending() && !reason.empty()) text += fmt::format(" ({})", reason);
  if (!is_pending() && !nodes.empty())
    text += fmt::format(" on {} for {} of {}", nodes, elapsed, limit);
  if (restarts == 1) text += ", requeued once";
  if (restarts > 1) text += fmt::format(", requeued {} times", restarts);
  return text;
}

std::vector<std::string> job_state_format() {
  std::string format = "--Format=";
  for (const QueueColumn& column : kQueueColumns) {
    if (&column != kQueueColumns.data()) format += ',';
    format += fmt::format("{}:{}", column.name, column.width);
  }
  return {"--noheader", "--states=all", format};
}

std::optional<JobState> parse_job_state(std::string_view answer) {
  if (trimmed(answer).empty()) return std::nullopt;
  const std::string_view line = answer.substr(0, answer.find('\n'));
  std::array<std::string, kQueueColumns.size()> fields;
  std::size_t at = 0;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (at > line.size()) refuse_answer("squeue", line);
    fields[i] = base::printable(trimmed(line.substr(at, kQueueColumns[i].width)));
    at += kQueueColumns[i].width;
  }
  const bool known = !fields[0].empty() && fields[0].find_first_not_of(
                                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string::npos;
  if (!known) refuse_answer("squeue", line);
  JobState state{fields[0], fields[1], fields[2], fields[3], fields[4], 0};
  if (state.reason == "None") state.reason.clear();
  state.restarts = whole_number("squeue", fields[5], line);
  return state;
}

std::int64_t parse_job_number(std::string_view answer) {
  // Sites print greetings; the number is in the last line.
  const std::string_view all = trimmed(answer);
  const std::string_view line = all.substr(all.rfind('\n') + 1);
  return whole_number("sbatch", line.substr(0, line.find(';')), line);
}

std::vector<NodeAddress> parse_node_addresses(std::string_view answer) {
  std::vector<NodeAddress> nodes;
  std::istringstream lines{std::string(answer)};
  for (std::string line; std::getline(lines, line);) {
    NodeAddress node;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.starts_with("NodeName=")) node.node = word.substr(9);
      if (word.starts_with("NodeAddr=")) node.address = word.substr(9);
    }
    if (node.node.empty() || node.address.empty()) refuse_answer("scontrol", line);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

base::ProgramResult run_slurm(const std::vector<std::string>& argv) {
  return base::run_program(argv, kSlurmLimit);
}

std::string slurm_output(const std::vector<std::string>& argv, const std::string& doing) {
  const base::ProgramResult answer = run_slurm(argv);
  if (answer.succeeded()) return answer.out;
  throw base::UserError(base::ExitCode::bad_input,
                        fmt::format("Slurm refuses {}: {}", doing, answer.error_line()));
}

}  // namespace strait::hosts
