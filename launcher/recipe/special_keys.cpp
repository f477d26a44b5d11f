

#include "launcher/base/text.h"
#include "launcher/recipe/key_kinds.h"
#include "launcher/recipe/number_keys.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe::special_keys {

namespace {

// One of a few numbers.
template <class Field>
RecipeKey listed_number(const std::string& name, Field field_of, std::vector<std::int64_t> numbers,
                        const std::string& allowed, const std::string& help) {
  return {name,
          allowed,
          help,
          {},
          [field_of, numbers = std::move(numbers)](const RecipeValue& value, Recipe& recipe) {
            const bool fits =
                value.is_number_integer() &&
                std::ranges::any_of(numbers, [&](std::int64_t number) { return value == number; });
            if (fits) field_of(recipe) = value.get<std::int64_t>();
            return fits;
          },
          [field_of](const Recipe& recipe) { return RecipeValue(field_of(recipe)); }};
}

template <class Field>
RecipeKey size(const std::string& name, Field field_of, const std::string& help) {
  return {
      name,
      kByteSizeForm,
      help,
      {},
      [field_of](const RecipeValue& value, Recipe& recipe) {
        const auto bytes = parse_byte_size(value);
        field_of(recipe) = bytes.value_or(field_of(recipe));
        return bytes.has_value();
      },
      [field_of](const Recipe& recipe) { return RecipeValue(format_byte_size(field_of(recipe))); }};
}

bool set_partition(const RecipeValue& value, Recipe& recipe) {
  Recipe::Partition partition;
  if (value == "balanced" || value == "profile") {
    partition.kind = value == "profile" ? PartitionKind::profile : PartitionKind::balanced;
  } else if (key_kinds::is_clean_text(value)) {
    const std::string_view plugin = value.get_ref<const std::string&>();
    constexpr std::string_view kPrefix = "plugin:";
    if (!plugin.starts_with(kPrefix) || plugin.size() == kPrefix.size()) {
      return false;
    }
    partition.kind = PartitionKind::plugin;
    partition.plugin = plugin.substr(kPrefix.size());
  } else {
    if (!value.is_array() || value.empty() || value.size() > 4096) {
      return false;
    }
    constexpr key_kinds::IntegerRange kLayers{0, 1'000'000};
    partition.kind = PartitionKind::ranges;
    for (const auto& range : value) {
      if (!range.is_array() || range.size() != 2 || !kLayers.holds(range[0]) ||
          !kLayers.holds(range[1]) || range[0] > range[1]) {
        return false;
      }
      partition.ranges.emplace_back(range[0].get<int>(), range[1].get<int>());
    }
  }
  recipe.pipeline.partition = partition;
  return true;
}

RecipeValue get_partition(const Recipe& recipe) {
  const auto& partition = recipe.pipeline.partition;
  switch (partition.kind) {
    case PartitionKind::ranges:
      return partition.ranges;
    case PartitionKind::plugin:
      return "plugin:" + partition.plugin;
    default:
      return name_of(partition.kind);
  }
}

bool set_rows(const RecipeValue& value, Recipe& recipe) {
  std::optional<std::vector<std::int64_t>>& rows = recipe.pipeline.rows;
  constexpr key_kinds::IntegerRange kRows{1, 1 << 20};
  const auto is_count = [&](const RecipeValue& one) { return kRows.holds(one); };
  if (value == "auto") {
    rows.reset();
  } else if (value == "equal") {
    rows.emplace();
  } else if (value.is_array() && !value.empty() && std::ranges::all_of(value, is_count)) {
    rows = value.get<std::vector<std::int64_t>>();
  } else {
    return false;
  }
  return true;
}

bool set_weights(const RecipeValue& value, Recipe& recipe) {
  Weights weights = Weights::run;
  if (value == "load" || value == "random") {
    weights = value == "load" ? Weights::load : Weights::random;
  } else if (!key_kinds::is_clean_text(value) ||
             value.get_ref<const std::string&>().find('/') == std::string::npos) {
    return false;
  }
  recipe.model.weights = weights;
  recipe.model.weights_run = weights == Weights::run ? value.get<std::string>() : std::string();
  return true;
}

}  // namespace

RecipeKey weights() {
  return {"model.weights",
          "\"load\", \"random\", or the directory of a run, such as \"runs/NAME\"",
          "the initial weights",
          {"load", "random"},
          set_weights,
          [](const Recipe& recipe) {
            const Recipe::Model& model = recipe.model;
            return model.weights == Weights::run ? RecipeValue(model.weights_run)
                                                 : RecipeValue(name_of(model.weights));
          }};
}

RecipeKey run_name() {
  auto key = key_kinds::text(
      "name", [](auto& recipe) -> auto& { return recipe.name; },
      "at most 100 letters, digits, \".\", \"_\" or \"-\", the first a letter or digit",
      "the run directory is runs/<name>/; by default the recipe's file name");
  key.set = [set = std::move(key.set)](const RecipeValue& value, Recipe& recipe) {
    const auto* name = value.get_ptr<const std::string*>();
    return name != nullptr && !name->empty() && name->size() <= kLongestRunName &&
           base::is_ascii_alphanumeric(name->front()) &&
           std::ranges::all_of(*name,
                               [](char c) {
                                 return base::is_ascii_alphanumeric(c) || c == '.' || c == '_' ||
                                        c == '-';
                               }) &&
           set(value, recipe);
  };
  return key;
}

RecipeKey partition() {
  return {
      "pipeline.partition",
      "\"balanced\", \"profile\", \"plugin:PATH\", or the first and last layer of each stage as in "
      "[[0, 5], [6, 11]] (of several chunks: the first ones of all stages, then the second ones)",
      "the layers of each stage; balanced: as many operations each, profile: as much time, as "
      "measured on this machine's CPU",
      {"balanced", "profile"},
      set_partition,
      get_partition};
}

RecipeKey rows() {
  return key_kinds::written_if_set(
      {"pipeline.rows",
       "\"auto\", \"equal\", or the rows of each replica as in [24, 8]",
       "of a step, by replica; auto: by speed where a step is shorter so, and the sync method "
       "weighs "
       "replicas by their rows",
       {"auto", "equal"},
       set_rows,
       [](const Recipe& recipe) {
         const auto& rows = recipe.pipeline.rows;
         if (!rows) return RecipeValue("auto");
         return rows->empty() ? RecipeValue("equal") : RecipeValue(*rows);
       }});
}

RecipeKey betas() {
  return {"train.betas",
          "two numbers from 0 to 0.999999, as in [0.9, 0.95]",
          "of AdamW",
          {},
          [](const RecipeValue& value, Recipe& recipe) {
            constexpr key_kinds::NumberRange kBeta{0, 0.999999};
            if (!value.is_array() || value.size() != 2 || !kBeta.holds(value[0]) ||
                !kBeta.holds(value[1])) {
              return false;
            }
            recipe.train.betas = {value[0].get<double>(), value[1].get<double>()};
            return true;
          },
          [](const Recipe& recipe) { return RecipeValue(recipe.train.betas); }};
}

RecipeKey cache() {
  return size(
      "codec.cache", [](auto& recipe) -> auto& { return recipe.codec.cache; },
      "memory per process for the activation cache of delta");
}

RecipeKey cache_disk() {
  return size(
      "codec.cache_disk", [](auto& recipe) -> auto& { return recipe.codec.cache_disk; },
      "disk per process for what that memory does not hold; \"0B\": none");
}

RecipeKey checkpoint_memory() {
  return size(
      "checkpoint.memory", [](auto& recipe) -> auto& { return recipe.checkpoint.memory; },
      "memory per process for copies of what changes before a checkpoint is written beside "
      "training; \"0B\": training pauses; absent: 1GiB");
}

RecipeKey budget() {
  return {
      "codec.budget",
      "a share of the loss such as \"0.1 %\"",
      "what compression may cost, as measured; the plan chooses codecs and bits, the fastest "
      "that cost no more; absent: the keys below",
      {},
      [](const RecipeValue& value, Recipe& recipe) {
        const auto* written = value.get_ptr<const std::string*>();
        const char* const end = written == nullptr ? nullptr : written->data() + written->size();
        double percent = 0;
        if (end == nullptr) return false;
        const auto [rest, error] = std::from_chars(written->data(), end, percent);
        const std::string_view unit(rest, end);
        if (error != std::errc() || (unit != " %" && unit != "%") || !(percent > 0) ||
            percent > 100) {
          return false;
        }
        recipe.codec.budget = percent;
        return true;
      },
      [](const Recipe& recipe) { return RecipeValue(fmt::format("{} %", recipe.codec.budget)); }};
}

RecipeKey keep_best() {
  RecipeKey key = key_kinds::integer(
      "checkpoint.keep_best", [](auto& recipe) -> auto& { return recipe.checkpoint.keep_best; },
      {0, 1'000'000},
      "checkpoints with the best evaluation loss that stay, too; true: 1; absent: false");
  key.allowed += ", or true or false";
  key.set = [set = std::move(key.set)](const RecipeValue& value, Recipe& recipe) {
    return set(value.is_boolean() ? RecipeValue(value == true ? 1 : 0) : value, recipe);
  };
  return key_kinds::written_if_set(std::move(key));
}

RecipeKey first_bits() {
  return listed_number(
      "codec.first_bits", [](auto& recipe) -> auto& { return recipe.codec.first_bits; },
      {2, 3, 4, 5, 6, 7, 8, 16}, "an integer from 2 to 8, or 16 for bfloat16",
      "of delta on a cache miss");
}

RecipeKey group() {
  return listed_number(
      "codec.group", [](auto& recipe) -> auto& { return recipe.codec.group; }, {32, 64, 128},
      "32, 64 or 128", "values that share a scale, in fixed and delta");
}

}  // namespace strait::recipe::special_keys
