#pragma once

#include <memory>

#include "framework/mutex.h"
#include "framework/net/link.h"

namespace strait::net {

// A link to a peer that may end and return as another process: the object stays, and the link
// behind it is replaced. While there is none, calls fail as those of a link whose
// peer is lost.
//
// Threads: as for any link; replace() may be called by any.
class ReplaceableLink final : public Link {
 public:
  // `name` and `peer` as in LinkState, while there is no link. `link` may be null.
  ReplaceableLink(std::string name, std::string peer, std::unique_ptr<Link> link);

  // The link so far is aborted: calls that wait on it end by that. Sums of bytes go on.
  void replace(std::unique_ptr<Link> link) STRAIT_EXCLUDES(mutex_);

  bool send_until(Frame& frame, std::chrono::steady_clock::time_point deadline) override;
  Frame receive() override;
  std::optional<Frame> receive_until(std::chrono::steady_clock::time_point deadline) override;
  bool flush(std::chrono::steady_clock::time_point deadline) override;
  void abort(const LinkError& cause) override;
  LinkState state() const override STRAIT_EXCLUDES(mutex_);

 private:
  std::shared_ptr<Link> there() const STRAIT_EXCLUDES(mutex_);  // LinkError lost: none

  mutable Mutex mutex_;
  LinkState before_ STRAIT_GUARDED_BY(mutex_);  // names, and what earlier links have carried
  std::shared_ptr<Link> link_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::net
