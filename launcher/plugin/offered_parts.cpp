#include "launcher/plugin/offered_parts.h"

#include <utility>

#include "framework/codec/codecs.h"
#include "framework/sync/methods.h"
#include "models/families.h"
#include "schedules/schedule.h"
#include "stages/partition.h"

namespace strait::plugin {

void OfferedParts::partition(const std::string& name, partition::Partition cut) {
  stages::partitions().add({name, "of a plugin", std::move(cut)});
  partitions_.push_back(name);
}

void OfferedParts::schedule(const schedules::Schedule& schedule) {
  schedules::catalogue().add(schedule);
}

void OfferedParts::family(const models::Family& family) { models::families().add(family); }

void OfferedParts::codec(const codec::CodecOffer& codec) { codec::codecs().add(codec); }

void OfferedParts::sync_method(const sync::MethodOffer& method) { sync::methods().add(method); }

std::vector<std::string> part_names(recipe::PartKind kind) {
  switch (kind) {
    case recipe::PartKind::schedule:
      return schedules::catalogue().names();
    case recipe::PartKind::codec:
      return codec::codecs().names();
    case recipe::PartKind::sync_method:
      break;
  }
  return sync::methods().names();
}

}  // namespace strait::plugin
