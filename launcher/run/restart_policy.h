#pragma once

#include "framework/store/sample.h"
#include "launcher/recipe/plan.h"
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

// How a run continues without hosts that were lost (hosts.restart), or starts without replicas. All
// functions are pure. A lost host becomes the last spare host: it may answer again later.

// The order in which spare hosts replace lost ones. The replica that misses fewest hosts comes
// first, so that as many replicas as possible are complete again. Replicas that the run does
// `without` are not counted; hosts on which only they run are last.
std::vector<std::size_t> replacement_order(const plan::Plan& plan,
                                           const std::set<std::uint32_t>& without,
                                           std::set<std::size_t> lost);

// Replaces a host by a spare one (an index into hosts.spare). Processes, layers, threads and links
// stay, so the run computes the same bits.
void replace_host(plan::Plan& plan, std::size_t host, std::size_t spare);

// The recipe of the same run on the remaining hosts: as many stages as they have slots for, or had
// processes of. Nullopt: less than one stage per replica is left.
std::optional<recipe::Recipe> recipe_without(const plan::Plan& plan,
                                             const std::set<std::size_t>& lost);

// ---- `--without R`: replicas that a run starts without; they can be added while it runs. All
// functions are pure.

// UserError with the reason why the run cannot start without these replicas.
void check_can_start_without(const plan::Plan& plan, const std::vector<std::uint32_t>& replicas);

// Hosts on which only these replicas have processes.
std::set<std::size_t> hosts_only_of(const plan::Plan& plan,
                                    const std::set<std::uint32_t>& replicas);

// Replicas with a process on a lost host, if the run can continue without them and without those
// left out already; else empty.
std::set<std::uint32_t> replicas_to_leave_out(const plan::Plan& plan,
                                              const std::set<std::uint32_t>& without,
                                              const std::set<std::size_t>& lost);

// The end of an error message about unreachable hosts: how to start without them. Empty if that is
// impossible. `without`: replicas that are left out already.
std::string advice_to_start_without(const plan::Plan& plan, const std::set<std::uint32_t>& without,
                                    const std::set<std::size_t>& lost);

}  // namespace strait::run
