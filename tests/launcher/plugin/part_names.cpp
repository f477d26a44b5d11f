#include <gtest/gtest.h>

#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::plugin {
namespace {

class PartNamesEnvironment : public testing::Environment {
 public:
  void SetUp() override { recipe::set_part_names(part_names); }
};

testing::Environment* const part_names_environment =
    testing::AddGlobalTestEnvironment(new PartNamesEnvironment);

}  // namespace
}  // namespace strait::plugin
