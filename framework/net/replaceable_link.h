#pragma once

#include <memory>

#include "framework/mutex.h"
#include "framework/net/link.h"

namespace strait::net {

// A link to a peer that may end and return as another process. This object stays, and the link that
// it wraps is replaced. While there is none, calls fail like those of a link whose peer is lost.
//
// Threads: as for any link; any thread may call replace().
class ReplaceableLink final : public Link {
 public:
  // `name` and `peer`: of LinkState while there is no link. `link` may be null.
  ReplaceableLink(std::string name, std::string peer, std::unique_ptr<Link> link);

  // The current link is aborted, which ends the calls that wait on it. Byte counts continue.
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
  LinkState before_ STRAIT_GUARDED_BY(mutex_);  // names, and the bytes of earlier links
  std::shared_ptr<Link> link_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::net
