#include <gtest/gtest.h>

#include "framework/sync/methods.h"
#include "launcher/recipe/recipe_keys.h"
#include "schedules/schedule.h"

namespace strait::recipe {
namespace {

// Rooms that have codecs link libtorch, which this test program does without.
std::vector<std::string> names_without_torch(PartKind kind) {
  if (kind == PartKind::sync_method) return sync::methods().names();
  if (kind == PartKind::schedule) return schedules::catalogue().names();
  return {"raw", "fixed", "delta", "transform", "auto"};
}

class PartNamesEnvironment : public testing::Environment {
 public:
  void SetUp() override { set_part_names(names_without_torch); }
};

testing::Environment* const part_names_environment =
    testing::AddGlobalTestEnvironment(new PartNamesEnvironment);

}  // namespace
}  // namespace strait::recipe
