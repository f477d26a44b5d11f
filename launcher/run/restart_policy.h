#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "framework/store/sample.h"
#include "launcher/recipe/recipe.h"
#include "launcher/run/outcome.h"

namespace strait::run {

// hosts.restart, or the default of the backend.
std::int64_t restart_limit(const recipe::Recipe::Hosts& hosts);

// Whether a run that ended restarts by itself. It does after the loss of a process or host, and
// after an error of a disk or file server, because these often pass. It does not after the user's
// stop, nor after a failure that another start would meet again (bad input, a full disk, numbers
// that are not finite). The number of restarts in a row is limited. A new checkpoint begins a new
// row; without one the failure is assumed to be permanent. Pure.
class RestartPolicy {
 public:
  // `limit` restarts in a row without a new checkpoint; 0: never.
  explicit RestartPolicy(std::int64_t limit) : limit_(limit) {}

  struct Decision {
    bool restart = false;
    std::int64_t number = 0;             // of this restart in its row
    std::chrono::milliseconds delay{0};  // before it begins
    bool exhausted = false;  // it does not restart because the limit is reached: first_failure()
  };
  // The run, or an attempt to restart it, ended with this. `newest`: its newest complete
  // checkpoint; nullopt: there is none, or it cannot be seen now.
  Decision after(const Outcome& outcome, std::optional<store::Step> newest);

  // The first failure of the present row. Call after() before.
  const Outcome& first_failure() const { return *first_; }
  std::int64_t limit() const { return limit_; }

 private:
  std::int64_t limit_;
  std::int64_t in_row_ = 0;
  std::optional<Outcome> first_;
  std::optional<store::Step> newest_;  // when first_ came
};

}  // namespace strait::run
