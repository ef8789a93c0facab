#include "check.h"
const CaseSet CHECK_LINEAR[1];
const int CHECK_LINEAR_COUNT = 0;
