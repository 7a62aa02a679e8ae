package leasehold.launchers.ozimov;

import leasehold.launchers.OriginalApiContract;

class OzimovTest extends OriginalApiContract {
    @Override
    protected String whose() {
        return "ozimov";
    }
}
