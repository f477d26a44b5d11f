#pragma once

#include "launcher/recipe/recipe_keys.h"

// The keys that are of no general kind; recipe_keys.cpp puts them into its list.
namespace strait::recipe::particular_keys {

RecipeKey run_name();    // name: a directory's name, and nothing that leaves runs/
RecipeKey partition();   // pipeline.partition: a word, a plugin or ranges
RecipeKey betas();       // train.betas: a pair
RecipeKey first_bits();  // codec.first_bits: 2 to 8, or 16
RecipeKey group();       // codec.group: a power of two
RecipeKey cache();       // codec.cache and
RecipeKey cache_disk();  // codec.cache_disk: sizes with their units

}  // namespace strait::recipe::particular_keys
