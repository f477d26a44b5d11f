#include "framework/sync/sync_method.h"

#include <stdexcept>

namespace strait::sync {

void SyncMethod::fold(const Round&, const Part&, Told, const Slots&, net::Frame&) {
  throw std::logic_error("sync method " + name() + " plans shard_reduce but folds nothing");
}

}  // namespace strait::sync
