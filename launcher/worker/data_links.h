#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/mutex.h"
#include "framework/net/node.h"
#include "framework/net/replaceable_link.h"
#include "framework/sync/membership.h"
#include "launcher/plan/stage_job.h"
#include "launcher/worker/stage_reporter.h"
#include "stages/stage_options.h"

namespace strait::worker {

// The links of a stage process to others: binds what it listens on, and connects the rest once it
// is known where. Where a replica that is lost may come back, there are new links to it before it
// takes part, while the stage trains; they get into the places of the former ones when it does.
//
// The node outlives it.
class DataLinks {
 public:
  using Endpoints = std::map<std::string, std::string>;  // by link

  DataLinks(net::Node& node, plan::StageJob job);

  // Of what this process bound when it began.
  const Endpoints& endpoints() const { return endpoints_; }

  // Once, on the thread that trains. Who is not among `everybody` takes no part (yet).
  stages::StageLinks connect(const Endpoints& everybody) STRAIT_EXCLUDES(mutex_);
  // All that were connected. Who they were given to keeps them.
  const std::vector<StageReporter::WatchedLink>& watched() const { return watched_; }

  // A replica comes, whose processes (by name) have these keys now. Binds anew what this process
  // listens on for it, each link at its address: returns where. Any thread, as the next one.
  Endpoints expect(std::uint32_t replica, const std::map<std::string, std::string>& keys,
                   const std::map<std::string, std::string>& binds) STRAIT_EXCLUDES(mutex_);
  void connect_to_new(const Endpoints& everybody) STRAIT_EXCLUDES(mutex_);
  // It takes part: on the thread that trains.
  void put_in_place(std::uint32_t replica, const sync::MembershipTracker& tracker)
      STRAIT_EXCLUDES(mutex_);

 private:
  struct Lasting {  // to another replica, which may be replaced
    net::ReplaceableLink* link = nullptr;
    std::unique_ptr<net::Link> next;  // to whoever comes, while it takes no part yet
  };

  std::unique_ptr<net::Link> bind(const plan::Plan::Link& link, Endpoints& endpoints)
      STRAIT_REQUIRES(mutex_);
  bool comes_back(const plan::Plan::Link& link) const;
  net::ProcessName peer_of(const plan::Plan::Link& link) const;
  bool is_mine(const plan::Plan::Link& link) const;
  StageReporter::WatchedLink watched(const plan::Plan::Link& link, net::Link* made) const;
  std::unique_ptr<net::Link>& place(stages::StageLinks& made, const plan::Plan::Link& link) const;

  net::Node& node_;
  Endpoints endpoints_;
  std::vector<StageReporter::WatchedLink> watched_;
  Mutex mutex_;
  plan::StageJob job_;  // keys change; under the mutex where that matters
  std::map<std::string, std::unique_ptr<net::Listener>> listeners_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<net::Link>> bound_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::string, Lasting> lasting_ STRAIT_GUARDED_BY(mutex_);
  std::uint32_t comes_ STRAIT_GUARDED_BY(mutex_) = 0;
};

}  // namespace strait::worker
