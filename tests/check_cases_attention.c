#include "check.h"
const CaseSet CHECK_ATTENTION[1];
const int CHECK_ATTENTION_COUNT = 0;
