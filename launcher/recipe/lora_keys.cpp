
#include "framework/name_pattern.h"
#include "launcher/recipe/key_kinds.h"
#include "launcher/recipe/number_keys.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

namespace {

using key_kinds::by_pattern;
using key_kinds::flag;
using key_kinds::integer;
using key_kinds::IntegerRange;
using key_kinds::number;
using key_kinds::NumberRange;
using key_kinds::text_list;

constexpr const char* kAllLinear = "all-linear";
constexpr IntegerRange kRanks = {1, 65536};
constexpr NumberRange kAlphas = {0, 1e6};

using Lora = Recipe::Lora;

// A member of the table, which is made where it is set.
template <auto Member>
constexpr auto in_lora() {
  return [](auto& recipe) -> auto& {
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(recipe)>>) {
      if (!recipe.model.lora) recipe.model.lora.emplace();
    }
    return recipe.model.lora.value().*Member;
  };
}

RecipeKey lora_table() {
  return {"model.lora",
          "a table of rank, alpha and targets",
          "fine-tune low-rank adapters only; absent: full fine-tuning",
          {},
          [](const RecipeValue& value, Recipe& recipe) {
            if (value.is_object() && !recipe.model.lora) recipe.model.lora.emplace();
            return value.is_object();
          },
          [](const Recipe& recipe) {
            return recipe.model.lora ? RecipeValue::object() : RecipeValue();
          }};
}

// A list of names, or a text: "all-linear" or a pattern.
RecipeKey targets() {
  const RecipeKey names = text_list("model.lora.targets", in_lora<&Lora::targets>(), "", "");
  RecipeKey key = names;
  key.allowed = "\"all-linear\", a list of names, or a regular expression of whole names";
  key.help = "the matrices with adapters";
  key.set = [names](const RecipeValue& value, Recipe& recipe) {
    const bool text = value.is_string();
    if (text && !(key_kinds::is_clean_text(value) && is_name_pattern(value.get<std::string>()))) {
      return false;
    }
    if (!text && !names.set(value, recipe)) return false;
    if (!recipe.model.lora) recipe.model.lora.emplace();
    if (text) recipe.model.lora->targets.clear();
    recipe.model.lora->pattern =
        text && value != kAllLinear ? value.get<std::string>() : std::string();
    return true;
  };
  key.get = [](const Recipe& recipe) {
    const Lora& lora = *recipe.model.lora;
    if (!lora.targets.empty()) return RecipeValue(lora.targets);
    return RecipeValue(lora.pattern.empty() ? kAllLinear : lora.pattern);
  };
  return key;
}

RecipeKey layers() {
  const auto field_of = in_lora<&Lora::layers>();
  return {"model.lora.layers",
          "a list of numbers of blocks, as in weight files",
          "only these blocks have adapters",
          {},
          [field_of](const RecipeValue& value, Recipe& recipe) {
            const bool fits = value.is_array() && !value.empty() &&
                              std::ranges::all_of(value, [](const RecipeValue& one) {
                                return IntegerRange{0, 65535}.holds(one);
                              });
            if (fits) field_of(recipe) = value.get<std::vector<std::int64_t>>();
            return fits;
          },
          [field_of](const Recipe& recipe) {
            return field_of(recipe).empty() ? RecipeValue() : RecipeValue(field_of(recipe));
          }};
}

}  // namespace

std::vector<RecipeKey> lora_keys() {
  std::vector<RecipeKey> keys = {
      integer("model.lora.rank", in_lora<&Lora::rank>(), kRanks, "of the low-rank product"),
      number("model.lora.alpha", in_lora<&Lora::alpha>(), kAlphas,
             "the product is scaled by alpha / rank"),
      targets(),
      text_list("model.lora.target_parameters", in_lora<&Lora::target_parameters>(),
                "a list of names such as [\"experts.gate_up_proj\", \"experts.down_proj\"]",
                "tensors of all experts of a block that have adapters"),
      number("model.lora.dropout", in_lora<&Lora::dropout>(), {0, 0.99}, "of the adapters' input"),
      flag("model.lora.rslora", in_lora<&Lora::rslora>(), "scale by alpha / sqrt(rank)"),
      flag("model.lora.dora", in_lora<&Lora::dora>(),
           "DoRA: train the norms of a matrix's outputs by themselves"),
      by_pattern("model.lora.rank_pattern", in_lora<&Lora::rank_pattern>(), kRanks,
                 "ranks of matrices whose names end as the pattern says"),
      by_pattern("model.lora.alpha_pattern", in_lora<&Lora::alpha_pattern>(), kAlphas,
                 "alphas of matrices whose names end as the pattern says"),
      layers(),
      text_list("model.lora.modules_to_save", in_lora<&Lora::modules_to_save>(),
                "a list of names such as [\"lm_head\"]", "modules that are trained whole"),
  };
  for (RecipeKey& key : keys) {
    key.get = [get = std::move(key.get)](const Recipe& recipe) {
      return recipe.model.lora ? get(recipe) : RecipeValue();
    };
  }
  keys.insert(keys.begin(), lora_table());
  return keys;
}

}  // namespace strait::recipe
