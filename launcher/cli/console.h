#pragma once

#include "framework/trace/combine_metrics.h"
#include "launcher/base/text.h"
#include "launcher/base/text_pump.h"
#include "launcher/cli/link_rates.h"
#include "launcher/cli/status_text.h"
#include "launcher/run/run_observer.h"
#include "launcher/run/step_ledger.h"

namespace strait::run {
struct RunEvent;
}

namespace strait::cli {

struct ConsoleOptions {
  enum class Style { live, plain, json };  // a terminal, a file or pipe, a program
  Style style = Style::plain;
  // The width of the terminal now, since its window may be resized.
  std::function<std::size_t()> columns = [] { return std::size_t{100}; };
  std::chrono::milliseconds every{1'000};  // plain: the least time between lines of steps
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  bool colors = false;

  // `color`: see base::wants_colors.
  static ConsoleOptions of_stdout(bool as_json, const std::string& color);
};

// The output of `strait run`: lines for people or, with --json, objects for programs. Only writes
// what it receives. One thread.
//
// On a terminal a block of lines (live_block) stays below the others and is redrawn in place. After
// every piece of text the cursor is where the block begins, so text of any piece replaces it,
// whether the pump has written the block or not, and a narrower window leaves nothing behind.
class Console : public run::RunObserver {
 public:
  Console(base::TextSink& sink, ConsoleOptions options);
  ~Console() override;  // leaves no block behind

  // The plan, as text or as one JSON object.
  void plan(const std::string& text, const std::string& json);
  // A remark; JSON {"event":"note","text":…}.
  void note(const std::string& text) override;
  // The last lines: where the results are and which commands follow.
  void finish(const std::vector<std::string>& lines);

  void connected(const run::Hello& hello) override;
  void training(store::Step from, store::Step to) override;
  void reports(const std::vector<run::ProcessReport>& processes) override;
  void step(const run::StepLine& line) override;
  void evaluated(const run::Evaluated& evaluated) override;
  void checkpointed(store::Step step) override;
  void checkpoint_failed(store::Step step, const std::string& text) override;
  void event(const std::string& source, const run::Event& event) override;
  void replicas_absent(const run::ReplicasAbsent& absent) override;
  void replica_left(const run::ReplicaLeft& gone) override;
  void rejoin_attempted(const run::RejoinAttempt& attempt) override;
  void replica_joined(const run::ReplicaJoined& joined) override;
  void standing_still(const std::string& why) override;
  void stopping(bool now) override;
  void restarting(const run::Restart& restart) override;
  void ended(const run::Outcome& outcome) override;

 private:
  using Time = std::chrono::steady_clock::time_point;

  // Stays on the screen, above the block.
  void lasting(const std::string& line, base::Tone tone = base::Tone::plain);
  std::string folded(const std::string& text) const;  // where it is live
  void draw();                                        // the block
  void erase();  // the block, for good or until the next draw()
  std::vector<std::string> doing(const std::vector<run::ProcessReport>& processes) const;
  void json(const std::string& event, const nlohmann::ordered_json& fields);
  void json(const run::RunEvent& event);
  void live_step(const run::StepLine& line);
  void plain_step(const run::StepLine& line, const std::string& text);
  std::string waiting_text(double seconds) const;  // what long silence is about
  std::string traffic_text() const;                // empty: nothing was sent
  void failure(const run::Outcome& outcome);
  std::string step_text(const run::StepLine& line) const;
  bool is(ConsoleOptions::Style style) const { return options_.style == style; }

  base::TextSink& sink_;
  ConsoleOptions options_;
  LinkRates rates_;
  run::RemainingTime remaining_;
  trace::MetricTotals<trace::BoundaryMetrics> boundaries_;
  trace::MetricTotals<trace::SyncMetrics> sync_;
  store::Step from_{};
  store::Step to_{};
  std::optional<Time> printed_;  // time of the last line of a step; live: of the last block
  Time said_;                    // time of the last line of any kind
  Time training_since_{};        // of this start
  std::string held_back_;        // the line of the latest step, if it was not printed as lasting
  // Live:
  RunView view_;
  std::vector<double> losses_;
  std::string evaluation_;         // the label of the latest one
  double first_step_seconds_ = 0;  // by the plan; 0: not known
  bool drawn_ = false;             // there may be a block on the screen
};

}  // namespace strait::cli
