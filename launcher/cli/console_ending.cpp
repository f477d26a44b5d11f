// The lines of Console about how a run has ended.

#include "launcher/cli/console.h"
#include "launcher/run/run_events.h"

namespace strait::cli {
namespace {

using Style = ConsoleOptions::Style;

// The last lines of a run are read at once: strait logs and events.jsonl have the others.
constexpr std::size_t kLogLines = 3;
constexpr std::size_t kFollowers = 1;

std::string fewer_text(std::uint64_t plain, std::uint64_t sent, const char* than) {
  constexpr double kLeast = 1.05;  // below, there is nothing to say
  if (!(trace::bytes_ratio(plain, sent) >= kLeast)) return "";
  return fmt::format(" ({:.1f}x fewer than {})", trace::bytes_ratio(plain, sent), than);
}

}  // namespace

void Console::ended(const run::Outcome& outcome) {
  if (is(Style::json)) return json(run::event_of(outcome));
  erase();
  view_ = {};
  if (!held_back_.empty()) lasting(std::exchange(held_back_, {}));
  if (const std::string sent = traffic_text(); !sent.empty()) lasting(sent);
  if (outcome.code != base::ExitCode::done) {
    failure(outcome);
  } else if (!outcome.early.empty()) {
    lasting(fmt::format("ended early after step {} of {}: {}", store::number(outcome.step),
                        store::number(to_), outcome.early));
  } else if (outcome.stopped) {
    lasting(fmt::format("stopped on request after step {} of {}", store::number(outcome.step),
                        store::number(to_)));
  }
}

// "sent      boundaries 73.7 MB (6.0x fewer than float32), replicas 1.2 MB (...)".
std::string Console::traffic_text() const {
  trace::BoundaryMetrics boundaries;
  for (const trace::BoundaryMetrics& one : boundaries_.all()) {
    boundaries.raw_bytes += one.raw_bytes;
    boundaries.sent_bytes += one.sent_bytes;
  }
  trace::SyncMetrics replicas;
  for (const trace::SyncMetrics& one : sync_.all()) {
    replicas.bfloat16_bytes += one.bfloat16_bytes;
    replicas.sent_bytes += one.sent_bytes;
  }
  std::vector<std::string> parts;
  if (boundaries.sent_bytes > 0) {
    parts.push_back(fmt::format("boundaries {}", base::byte_text(boundaries.sent_bytes)) +
                    fewer_text(boundaries.raw_bytes, boundaries.sent_bytes, "float32"));
  }
  if (replicas.sent_bytes > 0) {
    parts.push_back(
        fmt::format("replicas {}", base::byte_text(replicas.sent_bytes)) +
        fewer_text(replicas.bfloat16_bytes, replicas.sent_bytes, "a bfloat16 all-reduce"));
  }
  return parts.empty() ? "" : fmt::format("sent      {}", fmt::join(parts, ", "));
}

void Console::failure(const run::Outcome& outcome) {
  const char* meaning = base::meaning(outcome.code);
  lasting("");
  lasting(fmt::format("strait: {}", outcome.cause), base::Tone::bad);
  const std::string saved = outcome.checkpoint ? fmt::format("last checkpoint: step {}",
                                                             store::number(*outcome.checkpoint))
                                               : "no checkpoint since this start";
  lasting(fmt::format("  exit code {} ({}), {} done; {}", number(outcome.code),
                      meaning ? meaning : "?", base::counted(store::number(outcome.step), "step"),
                      saved));
  if (const auto all = std::span(outcome.log_tail); !all.empty()) {
    const auto shown = all.last(std::min(kLogLines, all.size()));
    lasting(fmt::format("  the last {} of its log:", base::counted(std::ssize(shown), "line")));
    for (const std::string& line : shown) lasting("    | " + line);
  }
  if (const auto all = std::span(outcome.followers); !all.empty()) {
    lasting(all.size() > kFollowers
                ? fmt::format("  {} failures followed, the first of them:", all.size())
                : "  a failure that followed:");
    lasting("    " + all.front());
  }
}

}  // namespace strait::cli
