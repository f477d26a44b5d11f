#include "launcher/recipe/part_names.h"

#include "framework/codec/codecs.h"
#include "framework/sync/methods.h"
#include "schedules/schedule.h"

namespace strait::launcher {

std::vector<std::string> part_names(PartKind kind) {
  switch (kind) {
    case PartKind::schedule:
      return schedules::catalogue().names();
    case PartKind::codec:
      return codec::codecs().names();
    case PartKind::sync_method:
      break;
  }
  return sync::methods().names();
}

}  // namespace strait::launcher
